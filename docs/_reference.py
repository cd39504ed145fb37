"""The reference as Markdown, from docstrings and signatures, the comments of headers, and the help of the command line."""

import inspect
import itertools
import re
import textwrap
from pathlib import Path

OPERATIONS = re.findall(r"^### `(\w+)`", (Path(__file__).parent / "operations.md").read_text(), flags=re.MULTILINE)
LABEL = re.compile(r"^((?:Shapes|Units|Error|Threads|Throws|Source|Laws|Gradient)\b[^:\n]*:)", flags=re.MULTILINE)
HANGING = re.compile(LABEL.pattern + r"(.*)\n +", flags=re.MULTILINE)


def prose(text):
    """Text that means nothing to Markdown but its code."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([\\*_{}\[\]<>#|$~])", r"\\\1", part) for i, part in enumerate(parts))


def paragraphs(text):
    """Comments and docstrings: text, rules of a name and what holds for it as a list, other indented text as it stands."""
    result = []
    for block in re.split(r"\n\s*\n", HANGING.sub(r"\1\2 ", textwrap.dedent(text).strip("\n"))):
        for is_aligned, lines in itertools.groupby(
            block.splitlines(), lambda line: re.match(r"  |.*\S {3,}\S", line) is not None
        ):
            part = textwrap.dedent("\n".join(lines))
            if not is_aligned:
                result.append(LABEL.sub(r"\n**\1**", prose(part)).strip())
            elif all(re.match(r"\S.*?\S {2,}\S| {6,}\S", line) for line in part.splitlines()):
                rules = re.findall(r"^(\S.*?\S) {2,}(\S.*(?:\n {6,}.*)*)", part, flags=re.MULTILINE)
                result.append("\n".join(f"- *{prose(name)}*: {prose(' '.join(rule.split()))}" for name, rule in rules))
            else:
                result.append(fence("text", part))
    return "\n\n".join(result) + "\n"


def fence(language, text):
    return f"```{language}\n{textwrap.dedent(text).strip()}\n```"


# Python.


def sections(doc):
    """[(title or "", text)] of a docstring as NumPy has them."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def entries(text):
    """Parameters as a list: `name` (kind): meaning."""
    result = []
    for head, body in re.findall(r"^(\S.*)\n((?:[ \t]+.*\n?|\s*\n)*)", text + "\n", flags=re.MULTILINE):
        name, _, kind = head.partition(" : ")
        about = paragraphs(body).strip() if body.strip() else ""
        about = about.replace("\n", "\n  ")
        name = name if "`" in name else f"`{name}`"
        result.append(f"- {name}" + (f" ({prose(kind)})" if kind else "") + (f": {about}" if about else ""))
    return "\n".join(result) + "\n"


def docstring(doc):
    result = []
    for title, text in sections(doc):
        if title:
            result.append(f"**{title}**\n")
        if title == "Examples":
            result.append(fence("pycon", text))
        elif title in ("Parameters", "Raises", "Returns", "Warns", "Attributes"):
            result.append(entries(text))
        else:
            result.append(paragraphs(text))
    return "\n".join(result)


def directive(kind, signature, module, body):
    return f"::::{{py:{kind}}} {signature}\n:module: {module}\n\n{body}\n::::\n"


def signature(function, name):
    """Without annotations: docstrings say the types, and a link to a class of another package would lead nowhere."""
    try:
        found = inspect.signature(function)
        plain = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
        found = found.replace(parameters=plain, return_annotation=found.empty)
        return name + str(found).replace("<no value>", "...")
    except ValueError:
        return name + "(...)"


def described(owner, module, name):
    """One public name as a directive."""
    what = getattr(owner, name)
    if not inspect.isclass(what):
        return directive("function", signature(what, name), module, docstring(what.__doc__))
    body = docstring(what.__doc__ or "")
    if hasattr(what, "_fields"):
        return directive("class", f"{name}({', '.join(what._fields)})", module, body)
    for method, function in vars(what).items():
        if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
            inner = directive("method", signature(function, method).replace("self, ", "").replace("(self)", "()"), module, "")
            body += "\n" + inner.replace("::::", ":::").replace("\n\n\n", f"\n\n{docstring(function.__doc__)}\n")
    return directive("class", signature(what, name), module, body)


def listed(owner, groups):
    """The names of a package by groups, each with its functions; every public name once."""
    left = [name for name in owner.__all__ if not name.startswith("__")]
    result = []
    for title, names in groups.items():
        names = [name for name in dict.fromkeys(names) if name in left]
        left = [name for name in left if name not in names]
        result += [f"\n## {title}\n", *(described(owner, owner.__name__, name) for name in names)]
    if left:
        raise ValueError(f"docs/_reference.py: {owner.__name__} has names without a group: {', '.join(left)}")
    return "\n".join(result)


def families(package):
    """The names of the registry by family, those that are not there too: `listed` drops them."""
    from isentropic import _core

    def with_vjp(operations):
        return [name for operation in operations for name in (operation["name"], operation["name"] + "_vjp")]

    operations = _core.operations()
    maps = [operation for operation in operations if operation["family"] == "map"]
    measures = [operation["name"] for operation in _core.measure_operations()]
    return {
        "Maps": with_vjp(maps),
        "Logarithms": with_vjp(operation for operation in operations if operation["family"] == "logarithm"),
        "Entropy control": [
            *with_vjp(_core.control_operations()),
            *("GammaResult", "maximum_entropy", "MaximumEntropyResult"),
        ],
        "The temperature or the entropy that fits": [
            *("fit_temperature", "fit_vector_scaling", "VectorScaling", "fit_target_entropy", "match_entropy"),
            *("expected_calibration_error", "reliability_bins", "ReliabilityBins", "reliability_diagram", "brier_score"),
            *("entropy_invariant_scale", "TemperatureClampedWarning"),
        ],
        "Losses": [
            *(loss["name"] for loss in [*_core.losses(), *_core.sparse_losses()]),
            "ratio_map",
            "linear_loss",
            *TOKENS,
        ],
        "Measures": [*measures, "conditional_mutual_information"],
        "Counts and labels": [
            *("entropy_of_counts", "mutual_information_of_counts", "Counts", "contingency_table", "ContingencyTable"),
            *("mutual_information_of_labels", "mutual_information_scores"),
        ],
        "Tables and choices of several": [
            *("doubly_stochastic", "doubly_stochastic_vjp"),
            *with_vjp(operation for operation in operations if operation["family"] == "selection"),
        ],
        "Transport": [name for name in package.__all__ if name in TRANSPORT],
        "Sampling": ["sample", "Sampler", "gumbel_noise", "gumbel_softmax", "speculative_sample"],
        "Attention": [
            "attention",
            "attention_vjp",
            "keys_seen",
            "scaled_dot_product_attention",
            "linear_attention",
            "linear_attention_vjp",
        ],
        "Files and tables": ["read", "write", "BatchMap"],
        "Threads and SIMD": ["set_num_threads", "get_num_threads", "simd_targets", "simd_target", "force_simd_target"],
    }


TOKENS = ("token_statistics", "linear_token_statistics", "TokenStatistics", "EntropyController")

TRANSPORT = {
    *("optimal_transport", "TransportResult", "sinkhorn", "SinkhornResult", "sinkhorn_divergence"),
    "unbalanced_sinkhorn_divergence",
    *("wasserstein_1d", "wasserstein_histogram", "wasserstein", "c_transform", "dual_value", "lipschitz_constant"),
    *("sliced_wasserstein", "SlicedResult", "partial_transport", "PartialResult"),
    *("unbalanced_sinkhorn", "UnbalancedResult", "sinkhorn_barycenter", "BarycenterResult"),
    *("wgan_critic_loss", "clip_weights", "gradient_penalty"),
}


def python():
    import isentropic
    import isentropic.calibration as calibration

    result = listed(isentropic, families(isentropic))
    result += "\n## scikit-learn: isentropic.calibration\n\n"
    names = ("TemperatureScaler", "VectorScaler", "EntropyScaler", "EntropyNormalizer")
    return result + "\n".join(described(calibration, "isentropic.calibration", name) for name in names)


def torch():
    import isentropic.torch as package

    groups = {title: names for title, names in families(package).items() if set(names) & set(package.__all__)}
    named = {name for names in groups.values() for name in names}
    modules = [name for name in package.__all__ if inspect.isclass(getattr(package, name)) and name not in named]
    return listed(package, {**groups, "Modules": modules})


# C++.


def without(text, start, last, replacement):
    """Text without each part from `start`, a pattern, to the first `last` that is in no bracket opened since."""
    while match := re.search(start, text):
        end, depth = match.end(), 0
        while depth > 0 or text[end - 1] != last or end == match.end():
            depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[: match.start()] + replacement(match) + text[end:].removeprefix(";")
    return text


def declaration(code):
    """What a user of a declaration needs of it: no bodies, nothing private."""
    code = re.sub(r" *// NOLINT.*", "", code)
    code = re.sub(r"\n private:\n.*?(?=\n};)", "", code, flags=re.DOTALL)
    if "concept " not in code:
        code = without(code, r"(\)(?: const)?)(?:\s*:\s[^;{]*)?\s*(?=\{)", "}", lambda match: match[1] + ";")
    code = re.sub(r"\n *constexpr std::string_view check\(\) const;", "", code)
    return re.sub(r"\n\s*\n", "\n\n", code).replace("{\n\n", "{\n").replace("\n\n}", "\n}").strip("\n")


def pieces(header):
    """(comment, code) of each declaration of a header, in their order; nested namespaces open and close by themselves."""
    body = header.partition("\nnamespace isentropic {")[2].partition("\n}  // namespace isentropic")[0]
    comment, code, depth = [], [], 0
    for line in [*body.splitlines(), ""]:
        if not line.strip() and depth == 0:
            if comment or code:
                yield "\n".join(comment), "\n".join(code)
            comment, code = [], []
        elif line.startswith("//") and not code:
            comment.append(line[2:].removeprefix(" "))
        elif re.match(r"(namespace \w+ \{|\}  // namespace)", line):
            yield "", line
        else:
            code.append(line)
            depth += line.count("{") - line.count("}")


def name_of(code):
    """What a declaration declares."""
    found = re.search(r"^(?:struct|class|enum class|concept|using) (\w+)|\bconcept (\w+)", code, flags=re.MULTILINE)
    found = found or re.search(r"(\w+)\(", code) or re.search(r"(\w+)(?:\[\])? =", code)
    return next(group for group in found.groups() if group)


def summaries(descriptions):
    """By struct, the sentence by which the operation describes itself, and where more is said."""
    result = {}
    pattern = r"struct Described<([\w:]+)> \{.*?\.name = \"(\w+)\",\s*\.summary =\s*((?:\"[^\"]*\"\s*)+),"
    for struct, name, text in re.findall(pattern, descriptions, flags=re.DOTALL):
        said = prose("".join(re.findall(r'"([^"]*)"', text)))
        result[struct] = said + (f" More: [{name}](../operations.md#{name}).\n" if name in OPERATIONS else "\n")
    return result


def without_macros(header):
    """A header as its users read it."""
    indent = len("ISENTROPIC_API ")
    return re.sub(r"\bISENTROPIC_API ([^;{]*)", lambda match: match[1].replace("\n" + " " * indent, "\n"), header).replace(
        "::inline ISENTROPIC_ABI", ""
    )


def version(folder):
    header = (folder / "version.h").read_text()
    numbers = re.findall(r"#define ISENTROPIC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    return ".".join(numbers) + re.search(r'VERSION_SUFFIX "(.*)"', header)[1]


def cpp(folder):
    order = re.findall(r'#include "isentropic/(\w+\.h)"', (folder / "isentropic.h").read_text())
    result = []
    others = {*order, "isentropic.h", "export.h", "c.h", "cuda_c.h"}
    for header in [*order, *sorted({path.name for path in folder.glob("*.h")} - others)]:
        text = without_macros((folder / header).read_text())
        intro = re.sub(r"^// ?", "", text[: text.index("#pragma once")], flags=re.MULTILINE)
        intro = [fence("cpp", part) if "isentropic::" in part else paragraphs(part) for part in re.split(r"\n\s*\n", intro)]
        result.append("\n\n".join([f"\n## {header}\n\n`#include <isentropic/{header}>`", *intro]))
        space, last = "", None
        # What follows the declarations describes operations, and is not for callers.
        declarations, _, descriptions = text.partition("// Descriptions of the operations above")
        said = summaries(descriptions)
        for comment, code in pieces(declarations):
            if opened := re.match(r"namespace (\w+) \{", code):
                space = opened[1] + "::"
            elif code.startswith("}"):
                space = ""
            elif not code:
                result.append(paragraphs(comment))
            elif space != "detail::":
                name = space + name_of(code)
                if name != last:
                    result.append(f"\n### {prose(name)}\n")
                last = name
                formula, comment = re.match(r"((?:  .*(?:\n|$))*)(.*)", comment, flags=re.DOTALL).groups()
                parts = (said.get(name, ""), formula and fence("text", formula) + "\n", paragraphs(comment))
                result += [part for part in parts if part.strip()]
                result.append(fence("cpp", declaration(code)) + "\n")
    return "\n".join(result)


# Command line.


def help_text(text):
    """What --help prints: options and commands as lists, examples as code."""
    result = []
    for block in re.split(r"\n\s*\n", re.sub(r"\n(?=Example)", "\n\n", text.strip("\n"))):
        title, _, rest = block.partition("\n")
        entries = re.findall(r"^  (\S.*?)(?: {2,}|\n {3,})(\S.*(?:\n {3,}.*)*)", rest, flags=re.MULTILINE)
        if entries and re.fullmatch(r"[A-Z][\w ]*:", title) and title != "Examples:":
            result.append(f"**{title[:-1]}**\n")
            result.append("\n".join(f"- `{name}`: {prose(' '.join(about.split()))}" for name, about in entries))
        elif block.startswith("Example"):
            lines = re.sub(r"^Examples?:\s*", "  ", re.sub(r"^ +", "  ", block, flags=re.MULTILINE)).splitlines()
            for is_code, part in itertools.groupby(lines, lambda line: line.startswith(" ")):
                text = "\n".join(part)
                result.append(fence("sh", text) if is_code else prose(text))
        else:
            about, _, usage = block.partition("Usage: ")
            result += [prose(about.strip()), fence("sh", usage) if usage else ""]
    return "\n\n".join(part for part in result if part) + "\n"


def command_line(run):
    """The help of the program and of each command. `run` takes arguments and gives what is printed."""
    whole = run("--help")
    commands = whole[whole.index("\nSubcommands:") : whole.index("\nExamples:")]
    result = ["\n## isentropic\n", help_text(whole.replace(commands, ""))]
    for group, names in re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", commands + "\n", flags=re.MULTILINE):
        result.append(f"\n## {'Commands' if group == 'Subcommands' else group}\n")
        for name in re.findall(r"^  (\w+)", names, flags=re.MULTILINE):
            result += [f"\n### isentropic {name}\n", help_text(run(name, "--help"))]
    return "\n".join(result)
