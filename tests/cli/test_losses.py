"""Losses and calibration as commands: what Python gives for the same numbers, targets from labels and from a second file."""

import numpy as np
import pytest

import isentropic

NAMES = ["cat", "dog", "cow", "eel"]
RNG = np.random.default_rng(5)
X = RNG.normal(size=(3000, 4)) * 2
Y = RNG.integers(0, 4, len(X))
COSINES = np.tanh(X)
TEACHER = RNG.normal(size=X.shape)
MEMBERS = (RNG.random(X.shape) < 0.4).astype(float)
SOFT = isentropic.softmax(TEACHER)

CLASSES = [
    ("softmax_loss", {"label_smoothing": 0.1}),
    ("sparsemax_loss", {}),
    ("entmax_loss", {"alpha": 1.3}),
    ("top_k_softmax_loss", {"k": 2}),
    ("top_p_softmax_loss", {"p": 0.7}),
    ("smooth_accuracy_loss", {"map": "sparsemax"}),
    ("surrogate_loss", {"map": "entmax"}),
]


def written(cli, name, rows, labels=None):
    lines = [",".join([*(["name"] if labels is not None else []), *NAMES])]
    for r, row in enumerate(rows.tolist()):
        lines.append(",".join([*([labels[r]] if labels is not None else []), *map(repr, row)]))
    return cli.write(name, "\n".join(lines) + "\n")


def options_of(params):
    return [word for name, value in params.items() for word in (f"--{name}", value)]


def values_of(text):
    return [float(line.split(",")[-1]) for line in text.splitlines()[1:]]


@pytest.fixture
def targets(cli):
    cli.save("y.npy", Y)
    written(cli, "x.csv", X)


@pytest.mark.parametrize(("name", "params"), CLASSES)
def test_classes(cli, targets, name, params):
    want = getattr(isentropic, name)(X, Y, **params)
    found = cli.output(name, "x.csv", "y.npy", *options_of(params))
    assert values_of(found) == want.tolist() and found.startswith(f"{name}\n")
    # Labels that are names of columns, and such that are numbers.
    for labels in ([NAMES[y] for y in Y], [f"{y}" for y in Y]):
        written(cli, "labelled.csv", X, labels)
        assert values_of(cli.output(name, "labelled.csv", *options_of(params), "--labels", "name")) == want.tolist()
    part = cli.output(name, "x.csv", "y.npy", *options_of(params), "--rows", "1500:1510", "--threads", 2)
    assert values_of(part) == want[1500:1510].tolist()


@pytest.mark.parametrize(
    ("name", "target", "params"),
    [
        ("softmax_loss", SOFT, {}),
        ("entmax_loss", SOFT, {"alpha": 1.7}),
        ("multilabel_softmax_loss", MEMBERS, {}),
        ("distillation_loss", TEACHER, {"temperature": 2.0}),
        ("jsd_loss", TEACHER, {"beta": 0.3}),
    ],
)
def test_rows_of_targets(cli, targets, name, target, params):
    cli.save("target.npy", target)
    want = getattr(isentropic, name)(X, target, **params)
    assert values_of(cli.output(name, "x.csv", "target.npy", *options_of(params))) == want.tolist()
    cli.save("few.npy", target[:-1])
    assert cli.error(name, "x.csv", "few.npy", "-o", "l.csv") == "few.npy: it has 2999 rows, fewer than x.csv"
    cli.save("many.npy", np.concatenate([target, target[:2]]))
    assert cli.error(name, "x.csv", "many.npy", "-o", "l.csv") == "many.npy: it has 3002 rows, and x.csv has 3000"


@pytest.mark.parametrize(
    ("map", "params"),
    [("top_k_softmax", {"k": 2}), ("entropy_normalize", {"entropy": 0.5}), ("entmax", {"alpha": 1.2, "temperature": 2})],
)
def test_parameters_of_a_map(cli, targets, map, params):
    for name in ("smooth_accuracy_loss", "surrogate_loss"):
        want = getattr(isentropic, name)(X, Y, map=(map, params))
        assert values_of(cli.output(name, "x.csv", "y.npy", "--map", map, *options_of(params))) == want.tolist()
    want = isentropic.surrogate_loss(X, Y, map=("softmax", {"temperature": 2.0}))
    assert values_of(cli.output("surrogate_loss", "x.csv", "y.npy", "--temperature", 2)) == want.tolist()


def test_parameters_that_a_map_lacks(cli, targets):
    given = ("surrogate_loss", "x.csv", "y.npy", "--map")
    assert cli.error(*given, "top_k_softmax") == "surrogate_loss: --map top_k_softmax: --k is required"
    assert cli.error(*given, "entmax", "--k", 2) == (
        "surrogate_loss: --map entmax: there is no parameter 'k'; it has --alpha, --temperature"
    )
    assert cli.error(*given, "entmax", "--alpha", 0).startswith(
        "surrogate_loss: --map entmax: --alpha must be above 0 and finite, got 0"
    )


def test_margin(cli):
    cli.save("y.npy", Y)
    written(cli, "x.csv", COSINES)
    found = values_of(cli.output("margin_softmax_loss", "x.csv", "y.npy", "--kind", "arc", "--scale", 10))
    assert found == isentropic.margin_softmax_loss(COSINES, Y, kind="arc", scale=10).tolist()


def test_targets_beside_the_scores(cli):
    """Arrays of one .npz, or of another one."""
    np.savez(cli.directory / "val.npz", logits=X, labels=Y, other=Y)
    np.savez(cli.directory / "y.npz", labels=Y, other=X)
    np.savez(cli.directory / "coin.npz", p=[[0.25], [0.75], [0.9]], labels=[0, 0, 1])
    want = isentropic.fit_temperature(X, Y)
    for given in (["val.npz"], ["val.npz", "val.npz"], ["val.npz", "y.npz"]):
        found = cli.output("fit_temperature", *given, "--key", "logits", "--target-key", "labels")
        assert values_of(found) == [want]
        found = cli.output("softmax_loss", *given, "--key", "logits", "--target-key", "labels", "-o", "loss.npy")
        np.testing.assert_array_equal(cli.load("loss.npy").ravel(), isentropic.softmax_loss(X, Y))
    found = cli.output("expected_calibration_error", "coin.npz", "--key", "p", "--target-key", "labels", "--binary")
    assert values_of(found) == [isentropic.expected_calibration_error([0.25, 0.75, 0.9], [0, 0, 1])]
    error = cli.error("fit_temperature", "val.npz", "--key", "logits", "--target-key", "classes")
    assert error == "val.npz: there is no array 'classes'; the file has 'logits', 'labels', 'other'"


def test_ignored_classes(cli, targets):
    want = isentropic.softmax_loss(X, Y, ignore_index=2)
    assert values_of(cli.output("softmax_loss", "x.csv", "y.npy", "--ignore_index", 2)) == want.tolist()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["softmax_loss", "x.csv"],
            "softmax_loss: x.csv has no labels; give a file of targets as TARGET, --labels COLUMN, or --target-key NAME of an "
            "array",
        ),
        (
            ["distillation_loss", "x.csv"],
            "distillation_loss: TARGET is missing; it is a file with a row of the teacher's scores for each row",
        ),
        (["softmax_loss", "x.csv", "high.csv"], "high.csv:2:1: softmax_loss: target must be a class from 0 to 3, got 9"),
        (["softmax_loss", "x.csv", "half.csv"], "half.csv:1:1: a class must be a whole number, got 0.5"),
        *(
            (
                [name, "x.csv", "names.csv"],
                "names.csv:2:1: 'bee' is not a number (TARGET has class numbers, from 0; names of classes can be the label "
                "column of FILE)",
            )
            for name in ("softmax_loss", "margin_softmax_loss", "fit_temperature")
        ),
        (["distillation_loss", "x.csv", "names.csv"], "names.csv:2:1: 'bee' is not a number"),
        (["softmax_loss", "x.csv", "wide.csv"], "wide.csv: it has 2 columns, and x.csv has 4"),
        (
            ["margin_softmax_loss", "x.csv", "wide.csv"],
            "wide.csv: it has 2 columns, and margin_softmax_loss takes one class for each row",
        ),
        (
            ["fit_temperature", "odd.csv"],
            "odd.csv:2:1: the label 'ant' is neither the name of a column nor a class counted from 0; give a file of "
            "targets as TARGET",
        ),
        (["softmax_loss", "x.csv", "none.csv"], "none.csv: No such file or directory"),
        (
            ["softmax_loss", "quoted.csv", "--labels", "2", "--rows", "1:"],
            "quoted.csv:2:2: softmax_loss: target must be a class from 0 to 1, got 9",
        ),
        (["softmax_loss", "x.csv", "high.npy"], "high.npy: softmax_loss: target must be a class from 0 to 3, got 9 in row 1"),
        (["softmax_loss", "x.csv", "half.npy"], "half.npy: a class must be a whole number, got 0.5 in row 0"),
        (["softmax_loss", "x.csv", "inf.csv"], "inf.csv:2: softmax_loss: target must be a distribution "),
        (["multilabel_softmax_loss", "x.csv", "inf.csv"], "inf.csv:2:3: multilabel_softmax_loss: target must be "),
    ],
)
def test_targets_that_are_none(cli, arguments, said):
    written(cli, "x.csv", X[:2])
    written(cli, "odd.csv", X[:2], ["ant", "bee"])
    cli.write("high.csv", "1\n9\n")
    cli.write("half.csv", "0.5\n1\n")
    cli.write("names.csv", "ant\nbee\n")
    cli.write("wide.csv", "0.5,0.5\n1,0\n")
    cli.write("quoted.csv", '1,"0",2\n1,"9",0.5\n')
    cli.write("inf.csv", "1,0,0,0\n1,0,inf,0\n")
    cli.save("high.npy", np.array([1, 9])), cli.save("half.npy", np.array([0.5, 1]))
    message = cli.error(*arguments)
    assert message == said or (said.endswith(" ") and message.startswith(said))


def test_targets_of_arrays_with_more_axes(cli):
    """Classes in the shape of the scores without their last axis, or distributions in their shape."""
    x, y = X[:24].reshape(2, 3, 4, 4), Y[:24].reshape(2, 3, 4)
    (
        cli.save("x.npy", x),
        cli.save("y.npy", y),
        cli.save("q.npy", SOFT[:24].reshape(x.shape)),
        cli.save("flat.npy", y.reshape(-1)),
    )
    for target, want in (("y.npy", y), ("q.npy", SOFT[:24].reshape(x.shape)), ("flat.npy", y)):
        cli.output("softmax_loss", "x.npy", target, "-o", "l.npy")
        np.testing.assert_allclose(np.load(cli.directory / "l.npy"), isentropic.softmax_loss(x, want), rtol=1e-14)
    cli.save("z.npy", y[:, :2])
    assert cli.error("sparsemax_loss", "x.npy", "z.npy", "-o", "m.npy").startswith("z.npy: ")


def test_calibration(cli):
    labels = [NAMES[y] for y in (X + RNG.gumbel(size=X.shape)).argmax(axis=1)]
    y = [NAMES.index(label) for label in labels]
    written(cli, "x.csv", 3 * X, labels)
    assert values_of(cli.output("fit_temperature", "x.csv")) == [isentropic.fit_temperature(3 * X, y)]
    assert values_of(cli.output("fit_target_entropy", "x.csv")) == [isentropic.fit_target_entropy(3 * X, y)]
    assert values_of(cli.output("match_entropy", "x.csv")) == [isentropic.match_entropy(3 * X)]
    cli.output("softmax", "x.csv", "-o", "p.csv")
    found = values_of(cli.output("expected_calibration_error", "p.csv", "--bins", 7, "--strategy", "quantile"))
    want = isentropic.expected_calibration_error(isentropic.softmax(3 * X), y, bins=7, strategy="quantile")
    assert found == pytest.approx([want], rel=1e-12)
    assert values_of(cli.output("fit_temperature", "x.csv", "--rows", "0:200")) == [
        isentropic.fit_temperature(3 * X[:200], y[:200])
    ]


def test_calibration_reports(cli):
    """Pages of bins, before and after what was fitted; names that are not harmless are inert, and a failure leaves no page."""
    labels = [NAMES[y] for y in (X + RNG.gumbel(size=X.shape)).argmax(axis=1)]
    y = [NAMES.index(label) for label in labels]
    name = '<img src=x onerror="alert(1)">&.csv'
    written(cli, name, 3 * X, labels)
    for command, fitted in (
        ("fit_temperature", lambda value: isentropic.softmax(3 * X, temperature=value)),
        ("fit_target_entropy", lambda value: isentropic.entropy_normalize(3 * X, entropy=value)),
    ):
        (value,) = values_of(cli.output(command, name, "--report", "r.html"))
        page = (cli.directory / "r.html").read_text()
        assert "<img" not in page and "<script" not in page and "default-src 'none'" in page
        for p in (isentropic.softmax(3 * X), fitted(value)):
            assert f"calibration error {isentropic.expected_calibration_error(p, y):.4f}" in page
            for confidence, accuracy in zip(*isentropic.reliability_bins(p, y)[3:5], strict=True):
                assert f"<td>{confidence:.4f}</td><td>{accuracy:.4f}</td>" in page
    cli.output("softmax", name, "-o", "p.csv")
    cli.output("expected_calibration_error", "p.csv", "--bins", 4, "--report", "e.html")
    assert (cli.directory / "e.html").read_text().count("<tr><td>") == len(
        isentropic.reliability_bins(isentropic.softmax(3 * X), y, bins=4).confidence
    )
    cli.error("fit_temperature", "p.csv", "-", "--report", "no.html", stdin=b"0\n")
    assert not (cli.directory / "no.html").exists()


@pytest.mark.parametrize("command", ["fit_temperature", "fit_target_entropy", "expected_calibration_error"])
def test_a_report_replaces_no_other_file(cli, command):
    """Nor gets a name that says something else. Nothing is computed before."""
    cli.write("x.csv", "a,b\n0.25,0.75\n0.5,0.5\n0.25,0.75\n0.5,0.5\n")
    cli.write("y.csv", "0\n1\n1\n0\n")
    cli.write("x.html", (cli.directory / "x.csv").read_text())
    (cli.directory / "link.html").symlink_to("x.html")
    for name in "x.csv", "e.pdf", "html", "r.html.bz2", "r":
        assert cli.error(command, "x.csv", "y.csv", "--report", name) == f"{command}: --report must end in .html, got '{name}'"
    assert "--report must end" in cli.error(command, "no.csv", "no.csv", "--report", "e.pdf")
    given = ["x.html", "y.csv", "--format-in", "csv", "--report"]
    for name in "x.html", "./x.html", "link.html", cli.directory / "x.html":
        assert cli.error(command, *given, name) == f"{command}: --report {name} is the same file as x.html"
    given = ["x.csv", "y.csv", "--format-out", "csv", "-o", "new.html", "--report"]
    for name in "new.html", "./new.html", cli.directory / "new.html":
        assert cli.error(command, *given, name) == f"{command}: --report {name} is the same file as -o new.html"
    message = cli.error(command, "x.csv", "y.csv", "--report", "-")
    assert message == f"{command}: the result and --report are both standard output; name a file with -o or --report"
    assert "<html" in cli.output(command, "x.csv", "y.csv", "--report", "-", "-o", "r.csv", "--quiet")
    for name in "r.html", "r.HTM", "r.html.gz":
        cli.output(command, "x.csv", "y.csv", "--report", name, "--quiet")
        assert (cli.directory / name).exists()


def test_a_temperature_at_an_end_of_its_range(cli):
    """The command says so, as Python does with TemperatureClampedWarning."""
    for labels, temperature in (("ab", 1e-3), ("ba", 1e3)):
        cli.write("x.csv", f"y,a,b\n{labels[0]},2,1\n{labels[1]},1,3\n")
        done = cli("fit_temperature", "x.csv")
        assert (done.returncode, done.stdout.decode()) == (0, f"temperature\n{temperature:g}\n")
        with pytest.warns(isentropic.TemperatureClampedWarning) as said:
            assert isentropic.fit_temperature([[2.0, 1.0], [1.0, 3.0]], ["ab".index(name) for name in labels]) == temperature
        assert done.stderr.decode() == f"isentropic: {said[0].message}\n"
        assert cli.output("fit_temperature", "x.csv", "--quiet") == done.stdout.decode()


def test_calibration_of_targets_that_are_none(cli):
    written(cli, "x.csv", X[:4])
    cli.output("softmax", "x.csv", "-o", "p.csv")
    cli.write("bad.csv", "0\n1\n2\n9\n")
    cli.write("many.csv", "0\n1\n2\n1\n1\n")
    for command, file in (("fit_temperature", "x.csv"), ("expected_calibration_error", "p.csv")):
        assert cli.error(command, file, "bad.csv").startswith("bad.csv:4:1: ")
        assert cli.error(command, file, "bad.csv", "--rows", "2:4").startswith("bad.csv:4:1: ")
        assert cli.error(command, file, "many.csv") == f"many.csv: it has 5 rows, and {file} has 4"
    assert cli.error("softmax_loss", "x.csv", "p.csv", "--ignore_index", 1).startswith(
        "softmax_loss: --ignore_index needs classes, and TARGET has several columns"
    )


def test_labels_of_columns_that_are_called_by_numbers(cli):
    """1, 2, 3 are not counted from 0: then labels are names, and a class number is not guessed."""
    rows = "2.5,1.5,0.5\n0.5,3.5,1.5\n0.5,1.5,3.5\n".splitlines()
    x = np.array([[float(cell) for cell in row.split(",")] for row in rows])

    def labelled(header, labels):
        lines = [f"{label},{row}" for label, row in zip(labels, rows, strict=True)]
        return cli.write("x.csv", "\n".join([f"label,{header}", *lines]) + "\n")

    labelled("1,2,3", "312")
    found = values_of(cli.output("softmax_loss", "x.csv", "--labels", "label"))
    assert found == pytest.approx(isentropic.softmax_loss(x, [2, 0, 1]))
    for header, labels in (("1,2,3", "012"), ("a,0,2", "a01")):
        labelled(header, labels)
        for command in ("softmax_loss", "fit_temperature"):
            message = cli.error(command, "x.csv", "--labels", "label")
            assert "is not the name of a column; a class number counted from 0 would mean another column" in message
    labelled("0,1,2", "012")  # names and places are the same
    assert values_of(cli.output("softmax_loss", "x.csv", "--labels", "label")) == pytest.approx(
        isentropic.softmax_loss(x, [0, 1, 2])
    )
    labelled("2019,2020,2021", "012")
    assert values_of(cli.output("softmax_loss", "x.csv", "--labels", "label")) == pytest.approx(
        isentropic.softmax_loss(x, [0, 1, 2])
    )
    labelled("1,2,3", ["1", "-100", "2"])
    found = values_of(cli.output("softmax_loss", "x.csv", "--labels", "label", "--ignore_index", "-100"))
    assert found == pytest.approx([*isentropic.softmax_loss(x[:1], [0]), 0.0, *isentropic.softmax_loss(x[2:], [1])])
    labelled("a,a,b", "aab")
    assert cli.error("softmax_loss", "x.csv").startswith("x.csv:2:1: several columns have the name 'a' of the label")


@pytest.mark.parametrize("command", ["fit_temperature", "fit_target_entropy", "expected_calibration_error"])
def test_a_report_that_cannot_be_written_leaves_the_result_as_it_was(cli, command):
    cli.write("x.csv", "l,a,b\na,0.25,0.75\nb,0.5,0.5\na,0.75,0.25\n")
    cli.write("o.csv", "OLD\n")
    message = cli(command, "x.csv", "--report", "nodir/r.html", "-o", "o.csv", "--quiet")
    assert message.returncode == 2 and b"nodir/r.html" in message.stderr
    assert (cli.directory / "o.csv").read_text() == "OLD\n"
    message = cli(command, "x.csv", "--report", "r.html", "-o", "nodir/o.csv", "--quiet")
    assert message.returncode == 2 and not (cli.directory / "r.html").exists()


def test_a_fit_of_probabilities_says_so(cli):
    p, y = isentropic.softmax(X[:50]), (X[:50] + RNG.gumbel(size=(50, 4))).argmax(-1)
    cli.save("p.npy", p)
    cli.save("y.npy", y)
    for arguments in (("fit_temperature", "p.npy", "y.npy"), ("match_entropy", "p.npy")):
        done = cli(*arguments)
        assert done.returncode == 0 and done.stderr.decode() == (
            f"isentropic: {arguments[0]}: each row of p.npy sums to 1; if these are probabilities, give their logarithms\n"
        )
        assert cli(*arguments, "--quiet").stderr == b""
    cli.save("p.npy", np.log(p))
    cli.output("fit_temperature", "p.npy", "y.npy")
    cli.save("p.npy", np.eye(4)[y])  # scores may be of 0 and 1
    assert b"sums to 1" not in cli("match_entropy", "p.npy").stderr
