"""The structs of other projects' interfaces that we declare for ourselves have the layouts of those projects' own headers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
XLA, ARROW = ((ROOT / name).read_text() for name in ("python/xla_ffi.h", "python/arrow.h"))

# (our struct, theirs, their names of our members).
HEAD = {"size": "struct_size", "extensions": "extension_start"}
ARRAYS = {**HEAD, "count": "size", "kinds": "types"}
FRAME = {
    **HEAD,
    "api": "api",
    "context": "ctx",
    "stage": "stage",
    "arguments": "args",
    "results": "rets",
    "attributes": "attrs",
}
API = {**HEAD, "version": "api_version", "internals": "internal_api", "make_error": "XLA_FFI_Error_Create"}
XLA_STRUCTS = [
    ("Extension", "XLA_FFI_Extension_Base", {"size": "struct_size", "kind": "type", "next": "next"}),
    ("Version", "XLA_FFI_Api_Version", {**HEAD, "major_number": "major_version", "minor_number": "minor_version"}),
    ("Metadata", "XLA_FFI_Metadata", {"size": "struct_size", "version": "api_version", "traits": "traits"}),
    ("MetadataExtension", "XLA_FFI_Metadata_Extension", {"head": "extension_base", "answer": "metadata"}),
    ("ErrorRequest", "XLA_FFI_Error_Create_Args", {**HEAD, "message": "message", "code": "errc"}),
    ("Api", "XLA_FFI_Api", API),
    ("Buffer", "XLA_FFI_Buffer", {**HEAD, "type": "dtype", "data": "data", "rank": "rank", "dims": "dims"}),
    ("Arrays", "XLA_FFI_Args", {**ARRAYS, "values": "args"}),
    ("Arrays", "XLA_FFI_Rets", {**ARRAYS, "values": "rets"}),
    ("Text", "XLA_FFI_ByteSpan", {"data": "ptr", "length": "len"}),
    ("Scalar", "XLA_FFI_Scalar", {"type": "dtype", "value": "value"}),
    ("Attributes", "XLA_FFI_Attrs", {**ARRAYS, "names": "names", "values": "attrs"}),
    ("Frame", "XLA_FFI_CallFrame", FRAME),
]
ARROW_STRUCTS = [
    (
        "Schema",
        "ArrowSchema",
        {name: name for name in ("format", "name", "metadata", "flags", "children", "dictionary", "release")}
        | {"child_count": "n_children", "owner": "private_data"},
    ),
    (
        "Array",
        "ArrowArray",
        {name: name for name in ("length", "null_count", "offset", "buffers", "children", "dictionary", "release")}
        | {"buffer_count": "n_buffers", "child_count": "n_children", "owner": "private_data"},
    ),
    (
        "Stream",
        "ArrowArrayStream",
        {"schema": "get_schema", "next": "get_next", "last_error": "get_last_error"}
        | {"release": "release", "owner": "private_data"},
    ),
]
# Those of which we leave out the last members, of some version.
CUT = {"Metadata", "Api", "Frame"}
XLA_NUMBERS = {
    "ExtensionKind": {"metadata": "XLA_FFI_Extension_Metadata"},
    "ErrorCode": {
        "invalid_argument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
        "unimplemented": "XLA_FFI_Error_Code_UNIMPLEMENTED",
        "internal": "XLA_FFI_Error_Code_INTERNAL",
    },
    "Type": {
        "boolean": "XLA_FFI_DataType_PRED",
        "int32": "XLA_FFI_DataType_S32",
        "int64": "XLA_FFI_DataType_S64",
        "float16": "XLA_FFI_DataType_F16",
        "float32": "XLA_FFI_DataType_F32",
        "float64": "XLA_FFI_DataType_F64",
        "bfloat16": "XLA_FFI_DataType_BF16",
    },
    "ArrayKind": {"buffer": "XLA_FFI_ArgType_BUFFER"},
    "AttributeKind": {"scalar": "XLA_FFI_AttrType_SCALAR", "text": "XLA_FFI_AttrType_STRING"},
    "Stage": {"execute": "XLA_FFI_ExecutionStage_EXECUTE"},
}


@pytest.mark.parametrize(("header", "structs"), [(XLA, XLA_STRUCTS), (ARROW, ARROW_STRUCTS)], ids=["xla", "arrow"])
def test_every_member_is_compared(header, structs):
    found = re.findall(r"^struct (\w+) \{\n(.*?)^\};", header, flags=re.MULTILINE | re.DOTALL)
    members = {name: set(re.findall(r"(\w+)(?:\)\([^)]*\))?;", re.sub("//.*", "", body))) for name, body in found}
    assert set(members) == {our for our, _, _ in structs}
    for our, _, names in structs:
        assert members[our] == set(names), our


def test_every_number_is_compared():
    enums = re.findall(r"^enum class (\w+) : std::int32_t \{ (.*?) \};", XLA, flags=re.MULTILINE)
    assert len(enums) == XLA.count("enum ")
    assert {name: set(re.findall(r"(\w+) =", body)) for name, body in enums} == {
        our: set(names) for our, names in XLA_NUMBERS.items()
    }


def comparison(structs, namespace):
    """Assertions of C++: as many bytes at the same places, and pointers where pointers are."""
    for our, their, names in structs:
        a = f"{namespace}::{our}"
        yield f"sizeof({a}) {'<=' if our in CUT else '=='} sizeof({their})"
        yield f"alignof({a}) == alignof({their})"
        for x, y in names.items():
            yield f"offsetof({a}, {x}) == offsetof({their}, {y})"
            yield f"sizeof({a}::{x}) == sizeof({their}::{y})"
            yield f"std::is_pointer_v<decltype({a}::{x})> == std::is_pointer_v<decltype({their}::{y})>"


def compiles(folder, where, includes, assertions):
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    lines = [f"#include {name}" for name in ("<cstddef>", "<type_traits>", *includes)]
    lines += [f"static_assert({one});" for one in assertions]
    program = folder / "layouts.cc"
    program.write_text("\n".join(lines) + "\n")
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}", f"-I{where}", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_xla(tmp_path):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    ours = "isentropic::xla"
    assertions = [
        f"{ours}::kMajorVersion == XLA_FFI_API_MAJOR",
        f"{ours}::kMinorVersion <= XLA_FFI_API_MINOR",
        f"sizeof({ours}::Frame) == XLA_FFI_CallFrame_STRUCT_SIZE",  # a call with another size is refused
        "int(XLA_FFI_ArgType_BUFFER) == int(XLA_FFI_RetType_BUFFER)",
        *comparison(XLA_STRUCTS, ours),
    ]
    for enum, names in XLA_NUMBERS.items():
        assertions.append(f"sizeof({ours}::{enum}) == sizeof({next(iter(names.values()))})")
        assertions += [f"int({ours}::{enum}::{x}) == int({y})" for x, y in names.items()]
    compiles(tmp_path, jax.ffi.include_dir(), ['"xla/ffi/api/c_api.h"', '"python/xla_ffi.h"'], assertions)


def test_arrow(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    includes = ['"arrow/c/abi.h"', '"python/arrow.h"']
    compiles(tmp_path, pyarrow.get_include(), includes, comparison(ARROW_STRUCTS, "isentropic::arrow"))
