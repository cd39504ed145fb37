"""NumPy files: every type, shape and version in, headers that lie refused."""

import numpy as np
import pytest
from conftest import parsed, softmax

LONGER = "the file is longer than its header says"
RNG = np.random.default_rng(2)


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", ">f8"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5), (2, 1, 3, 5), (0, 5), (3, 0), (1, 1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats(cli, dtype, shape, order):
    x = np.asarray(RNG.normal(size=shape), dtype=dtype, order=order)
    cli.output("softmax", cli.save("x.npy", x), "-o", "p.npy")
    p = cli.load("p.npy")
    assert p.shape == shape
    assert p.dtype == np.dtype(dtype).newbyteorder("<")
    if x.size:
        np.testing.assert_allclose(p, softmax(x.astype(float)), rtol=1e-5 if dtype[1:] == "f4" else 1e-13)
    cli.output("logsumexp", "x.npy", "-o", "y.npy")
    assert cli.load("y.npy").shape == shape[:-1]


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", ">i4", "i8", "u1", ">u2", "u4", "u8"])
def test_integers_become_float64(cli, dtype):
    x = np.array([[0, 1, 3], [7, 100, 2]]).astype(dtype)
    cli.output("softmax", cli.save("x.npy", x), "-o", "p.npy")
    assert cli.load("p.npy").dtype == np.float64
    np.testing.assert_allclose(cli.load("p.npy"), softmax(x.astype(float)), rtol=1e-13)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(cli, version):
    with open(cli.directory / "x.npy", "wb") as file:
        np.lib.format.write_array(file, np.zeros((2, 2)), version=version)
    assert cli.output("softmax", "x.npy") == "0.5,0.5\n0.5,0.5\n"


def test_float32_bits_survive_csv(cli):
    x = RNG.normal(size=(50, 7)).astype(np.float32)
    out = parsed(cli.output("softmax", cli.save("x.npy", x)))
    cli.output("softmax", "x.npy", "-o", "p.npy")
    assert np.array_equal(out.astype(np.float32), cli.load("p.npy"))
    # No digit more than float32 needs.
    assert max(len(cell) for cell in cli.output("softmax", "x.npy").replace("\n", ",").split(",")) <= 14


def test_more_dimensions_are_rows_in_csv(cli):
    assert cli.output("softmax", cli.save("x.npy", np.zeros((2, 2, 2)))) == "0.5,0.5\n" * 4
    assert cli.output("softmax", cli.save("y.npy", np.zeros(2))) == "0.5,0.5\n"
    assert cli.output("logsumexp", cli.save("z.npy", np.array([3.0]))) == "3\n"


def test_names_stay_behind(cli):
    cli.output("softmax", cli.write("x.csv", "name,a,b\ncat,0,0\n"), "-o", "p.npy")
    assert np.array_equal(cli.load("p.npy"), [[0.5, 0.5]])


def raw(header, body=b"", version=1):
    header = header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2 if version == 1 else 4, "little") + header + body


def described(descr="'<f8'", order="False", shape="(2,)", body=b"\0" * 16):
    return raw(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n", body)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"1,2\n", "this is not an .npy file"),
        (b"\x93NUMPY", "the file is cut short within its header"),
        (b"\x93NUMPY\x01\x00\x76", "the file is cut short within its header"),
        (b"\x93NUMPY\x01\x00\x76\x00{", "the file is cut short within its header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "the file is cut short within its header"),
        (b"\x93NUMPY\x04\x00\x00\x00", ".npy version 4 is not known; only 1, 2 and 3 are"),
        (described(body=b"\0" * 15), "the file is cut short: shape (2) needs 16 bytes of numbers, there are 15"),
        (described(body=b"\0" * 17), f"{LONGER}: shape (2) needs 16 bytes of numbers, there are 17"),
        (described(shape="(3, 0)"), f"{LONGER}: shape (3, 0) needs 0 bytes of numbers, there are 16"),
        (described("'|O'"), "the array holds Python objects; numbers are needed"),
        (described("[('a', '<f8')]"), "the array holds records; plain numbers are needed"),
        (described("'<c16'"), "the array's type is '<c16'; floats of 16, 32 and 64 bits, integers and booleans can be read"),
        (described("'<f2'"), f"{LONGER}: shape (2) needs 4 bytes of numbers, there are 16"),
        (described("'<U4'"), "the array's type is '<U4'; floats of 16, 32 and 64 bits, integers and booleans can be read"),
        (described("''"), "the array's type is ''; floats of 16, 32 and 64 bits, integers and booleans can be read"),
        (described(shape="()", body=b"\0" * 8), "the array is a single number; rows of scores are needed"),
        (described(shape="(-1,)"), "the header has a negative length in its shape"),
        (described(shape="(9223372036854775808,)"), "the header has a length of 2^63 or more in its shape"),
        (described(shape="(99999999999999999999999,)"), "the header has a length of 2^63 or more in its shape"),
        (described(shape="(4294967296, 4294967296)"), "the shape (4294967296, 4294967296) is larger than any memory"),
        (described(shape="(4611686018427387904, 4)"), "the shape (4611686018427387904, 4) is larger than any memory"),
        (
            described(shape="(4294967296, 4294967296, 0)", body=b""),
            "the shape (4294967296, 4294967296, 0) is larger than any memory",
        ),
        (  # what takes a byte in the file takes eight once it is read
            described("'|b1'", shape="(1152921504606846976, 0)", body=b""),
            "the shape (1152921504606846976, 0) is larger than any memory",
        ),
        (
            described(shape="(1152921504606846975,)"),
            "the file is cut short: shape (1152921504606846975) needs 9223372036854775800 bytes of numbers, there are 16",
        ),
        (described(shape=f"({'1, ' * 65})"), "the header has more than 64 dimensions"),
        (described(shape="(2.5,)"), "the header has a shape that is not a tuple of numbers"),
        (described(shape="2"), "the header has a shape that is not a tuple"),
        (described(order="0"), "the header has a fortran_order other than True or False"),
        (raw("{'descr': '<f8', 'shape': (2,)}"), "the header lacks descr, fortran_order or shape"),
        (raw("{'descr': '<f8', 'descr': '<f8'}"), "the header has an unexpected or repeated key"),
        (raw("{'fortran_order': False, 'fortran_order': False}"), "the header has an unexpected or repeated key"),
        (raw("{'shape': (2,), 'shape': (2,)}"), "the header has an unexpected or repeated key"),
        (raw("{'descr': '<f8', 'extra': 1}"), "the header has an unexpected or repeated key"),
        (raw("[]"), "the header is not a Python dictionary"),
        (raw("{" + " " * 2**20, version=2), "the header says that it has 1048577 bytes"),
        (raw("{'descr': '<f8'"), "the header is not a Python dictionary"),
        (raw("{'descr"), "the header is not a Python dictionary"),
        (raw("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)} x"), "the header goes on after its end"),
    ],
)
def test_bad_input(cli, content, message):
    assert cli.error("softmax", cli.write("x.npy", content), "-o", "y.npy") == f"x.npy: {message}"


def test_every_cut_is_noticed(cli):
    whole = described()
    for size in range(0, len(whole), 3):
        assert cli.error("softmax", cli.write("x.npy", whole[:size])).startswith("x.npy: ")


def test_what_no_memory_can_hold(cli):
    if cli.sanitized:
        pytest.skip("the address sanitizer ends the program where new throws")
    file = cli.write("x.npy", described("'<f8'", shape="(1152921504606846975, 0)", body=b""))
    assert cli.error("logsumexp", file, status=1) == "not enough memory"


def test_no_label_column(cli):
    assert cli.error("softmax", cli.save("x.npy", np.zeros(2)), "--labels", 1) == "x.npy: an .npy file has no label column"
