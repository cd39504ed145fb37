"""Several files as one."""

import numpy as np
import pytest

A, B = "id,a,b\nx,1,2\ny,0,0\n", "id,a,b\nz,3,4\n"


def test_rows_follow(cli):
    cli.write("a.csv", A), cli.write("b.csv", B), cli.write("all.csv", A + B.split("\n", 1)[1])
    for command in (
        ["softmax"],
        ["entropy", "--input", "scores"],
        ["describe", "--input", "scores"],
        ["gamma", "--entropy", "0.3"],
    ):
        assert cli.output(command[0], "a.csv", "b.csv", *command[1:]) == cli.output(command[0], "all.csv", *command[1:])


def test_draws_and_rows_count_on(cli):
    for name, rows in (("a", 700), ("b", 1), ("c", 2000)):
        cli.save(f"{name}.npy", np.random.default_rng(rows).standard_normal((rows, 300)))
    names = ["a.npy", "b.npy", "c.npy"]
    cli.save("all.npy", np.concatenate([np.load(cli.directory / name) for name in names]))
    for options in ([], ["--rows", "650:705"], ["--rows", "2000:"]):
        for threads in (1, 2):
            joined = cli.output("sample", *names, "--seed", "5", "--threads", threads, *options)
            assert joined == cli.output("sample", "all.npy", "--seed", "5", *options)
    cli.output("softmax", *names, "-o", "p.npy")
    cli.output("softmax", "all.npy", "-o", "q.npy")
    assert cli.files()["p.npy"] == cli.files()["q.npy"]


def test_formats_mix_and_standard_input_is_one(cli):
    cli.write("a.csv", "1,2\n")
    cli.write("b.jsonl", "[3, 4]\n")
    assert cli.output("sparsemax", "a.csv", "b.jsonl", "-", stdin=b"5,5\n") == "0,1\n0,1\n0.5,0.5\n"
    assert cli.output("sparsemax", "a.csv", "-", "--missing", "skip", stdin=b"5,\n1,1\n") == "0,1\n0.5,0.5\n"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("id,a,c\nz,3,4\n", "b.csv: it has the columns 'a', 'c', and a.csv has the columns 'a', 'b'"),
        ("id,a,b,c\nz,3,4,5\n", "b.csv: it has 3 columns, and a.csv has 2"),
        ("a,b\n3,4\n", "b.csv: its labels are in another column than those of a.csv"),
        ("3,4\n", "b.csv: it has no header, and a.csv has the columns 'a', 'b'"),
        ("id,a,b\nz,3,x\n", "b.csv:2:3: 'x' is not a number"),
        ("id,a,b\nz,1,1\nz,nan,inf\n", None),
    ],
)
def test_files_that_are_not_alike(cli, second, said):
    cli.write("a.csv", A), cli.write("b.csv", second)
    if said is None:
        assert cli.output("softmax", "a.csv", "b.csv").endswith("z,nan,nan\n")
    else:
        assert cli.error("softmax", "a.csv", "b.csv", "-o", "p.csv").startswith(said)


def test_messages_name_the_file_and_its_row(cli):
    cli.write("a.csv", "0.5,0.5\n" * 3), cli.write("b.csv", "0.5,0.5\n0.5,0.6\n")
    said = cli.error("entropy", "a.csv", "b.csv", "-o", "h.csv")
    assert said.startswith("b.csv:2: entropy: p must sum to 1")
    assert cli.error("softmax", "a.csv", "no.csv", "-o", "p.csv") == "no.csv: No such file or directory"
    assert cli.error("softmax", "a.csv", "", "-o", "p.csv") == "softmax: MORE must be names of files, got ''"
    cli.save("x.npy", np.zeros((2, 3, 2)))
    assert (
        cli.error("softmax", "a.csv", "x.npy", "-o", "p.csv") == "x.npy: an array of 3 axes cannot be joined with other files"
    )
    cli.save("y.npy", np.zeros((2, 2), np.float32))
    assert cli.error("softmax", "a.csv", "y.npy", "-o", "p.csv") == "y.npy: its numbers are of another type than those of a.csv"
    assert cli.error("softmax", "a.csv", "b.csv", "--rows", "7:", "-o", "p.csv") == (
        "the files together: --rows begins at 7, but there are only 5 rows"
    )
