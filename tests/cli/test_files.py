"""Where scores come from and results go: names, pipes, devices, and nothing left behind after a failure."""

import contextlib
import os
import pathlib
import re
import resource
import signal
import stat
import subprocess
import time

import numpy as np
import pytest

X = "0,0\n"
P = "0.5,0.5\n"


@pytest.mark.parametrize("arguments", [[], ["-"], ["-", "-o", "-"], ["/dev/stdin"]])
def test_standard_input_is_csv(cli, arguments):
    assert cli.output("softmax", *arguments, stdin=X.encode()) == P


def test_format_in(cli):
    cli.save("x.npy", np.zeros((1, 2)))
    assert cli.output("softmax", "--format-in", "npy", stdin=cli.files()["x.npy"]) == P
    assert cli.output("softmax", "--format-in", "tsv", stdin=b"0\t0\n") == P
    cli.write("x.dat", X)
    assert cli.output("softmax", "x.dat", "--format-in", "csv") == P
    assert cli.output("softmax", cli.write("X.CSV", X)) == P


def test_messages_name_standard_input(cli):
    assert cli.error("softmax", stdin=b"1,2\n3,abc\n") == "standard input:2:2: 'abc' is not a number"
    assert cli.error("softmax", stdin=b"") == "standard input: the file is empty"


def test_what_cannot_be_read(cli):
    (cli.directory / "folder.csv").mkdir()
    assert cli.error("softmax", "no.csv") == "no.csv: No such file or directory"
    assert cli.error("softmax", "folder.csv") == "folder.csv: this is a folder, not a file"
    assert cli.error("softmax", ".") == ".: this is a folder, not a file"
    twice = "standard input can be only one of the files"
    assert cli.error("kl_divergence", "-", "-", stdin=b"0.5,0.5\n") == twice
    assert cli.error("softmax", "-", "-", stdin=b"0.5,0.5\n") == twice
    ending = "x.dat: the name ends in none of .csv, .tsv, .npy, .npz, .jsonl, .safetensors; --format-in names the format"
    assert cli.error("softmax", cli.write("x.dat", X)) == ending
    if os.geteuid() != 0:
        (cli.directory / cli.write("secret.csv", X)).chmod(0)
        assert cli.error("softmax", "secret.csv") == "secret.csv: Permission denied"


def test_what_cannot_be_written(cli):
    cli.write("x.csv", X)
    (cli.directory / "folder.csv").mkdir()
    assert (
        cli.error("softmax", "x.csv", "-o", "y.dat")
        == "y.dat: the name must end in one of .csv, .tsv, .npy, .npz, .jsonl, .safetensors, "
        "also with .gz or .zst; --format-out names the format"
    )
    assert cli.error("softmax", "x.csv", "-o", "no/y.csv") == "no/y.csv: No such file or directory"
    assert cli.error("softmax", "x.csv", "-o", "folder.csv") == "folder.csv: this is a folder, not a file"
    assert cli.error("softmax", "x.csv", "-o", "x.csv/y.csv") == "x.csv/y.csv: Not a directory"


def test_full_disk(cli):
    cli.write("x.csv", X)
    assert cli.error("softmax", "x.csv", "-o", "/dev/full", status=1) == "/dev/full: No space left on device"
    with open("/dev/full", "w") as full:
        done = subprocess.run([cli.program, "softmax", cli.directory / "x.csv"], stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"isentropic: standard output: No space left on device\n")


def test_file_too_large_leaves_nothing(cli):
    cli.save("x.npy", np.zeros((1000, 100)))
    before = cli.files()
    # A limit on the size of files stands in for a full disk. The signal that it sends would end the program.
    limited = 'ulimit -f 8; exec "$@"'
    for out in ["p.csv", "p.npy", "x.npy"]:
        command = ["sh", "-c", limited, "sh", cli.program, "softmax", "x.npy", "-o", out]
        done = subprocess.run(command, cwd=cli.directory, capture_output=True)
        assert (done.returncode, done.stderr.decode()) == (1, f"isentropic: {out}: File too large\n")
        assert cli.files() == before
    with open(cli.directory / "p.csv", "wb") as out:
        command = ["sh", "-c", limited, "sh", cli.program, "softmax", "x.npy"]
        done = subprocess.run(command, cwd=cli.directory, stdout=out, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"isentropic: standard output: File too large\n")


# Files without names are not on every system: with this the program finds none.
NO_NAMELESS_FILES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#define OPEN(name)                                                       \\
  int name(const char* path, int flags, ...) {                           \\
    va_list rest;                                                        \\
    va_start(rest, flags);                                               \\
    const mode_t mode = va_arg(rest, mode_t);                            \\
    va_end(rest);                                                        \\
    if ((flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1; \\
    int (*next)(const char*, int, ...) = dlsym(RTLD_NEXT, #name);        \\
    return next(path, flags, mode);                                      \\
  }
OPEN(open)
OPEN(open64)
"""


@pytest.fixture(params=["nameless", "named"])
def environment(request, cli, tmp_path_factory):
    """The environment of a program that writes files without names, or that can not."""
    if request.param == "nameless" or cli.sanitized:  # the sanitizer must be loaded first
        return {}
    folder = tmp_path_factory.mktemp("library")
    (folder / "open.c").write_text(NO_NAMELESS_FILES)
    command = ["cc", "-shared", "-fPIC", "-w", "-o", folder / "open.so", folder / "open.c", "-ldl"]
    subprocess.run(command, check=True)
    return {"LD_PRELOAD": str(folder / "open.so")}


def is_writing(cli, process):
    """Whether the process has a file of the directory open, also one without a name."""
    folder = f"/proc/{process.pid}/fd"
    targets = []
    for number in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(f"{folder}/{number}"))
    return any(target.startswith(f"{cli.directory}/") and not target.endswith(".npy") for target in targets)


def start_writing(cli, *command, environment=None):
    """The program, in the midst of writing p.csv: it waits for more rows."""
    process = subprocess.Popen(
        [*command, cli.program, "softmax", "-o", "p.csv"],
        cwd=cli.directory,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    process.stdin.write(X.encode() * 100)
    process.stdin.flush()
    while not is_writing(cli, process):
        assert process.poll() is None
        time.sleep(0.001)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_leave_nothing(cli, number, environment):
    process = start_writing(cli, environment=environment)
    if environment:
        [temporary] = os.listdir(cli.directory)
        assert re.fullmatch(r"p\.csv\.isentropic-[a-zA-Z0-9]{6}\.tmp", temporary)
    resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))  # what SIGQUIT would leave
    process.send_signal(number)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == -number
    assert os.listdir(cli.directory) == []


def test_a_kill_leaves_nothing(cli):
    """No program can clean up after SIGKILL: its file must have no name. Where it has one, that says what it is."""
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without names")
    for old in False, True:
        if old:
            cli.write("p.csv", X)
        process = start_writing(cli)
        process.kill()
        process.communicate(timeout=60)
        assert os.listdir(cli.directory) == (["p.csv"] if old else [])
    assert (cli.directory / "p.csv").read_text() == X


def test_what_a_kill_leaves_elsewhere_can_be_swept(cli, environment):
    process = start_writing(cli, environment=environment)
    process.kill()
    process.communicate(timeout=60)
    assert len(os.listdir(cli.directory)) == bool(environment)
    sweep = "find . -name '*.isentropic-??????.tmp' -mmin +60 -delete"
    assert sweep in (pathlib.Path(__file__).parents[2] / "docs/howto/files.md").read_text()
    for path in cli.directory.iterdir():
        os.utime(path, (1, 1))
    subprocess.run(sweep, shell=True, cwd=cli.directory, check=True)
    assert os.listdir(cli.directory) == []


def test_files_with_and_without_names_are_put_in_place(cli, environment):
    """New, instead of an old one with its mode, by way of a link, and none if the folder may not be written."""
    cli.write("x.csv", X)
    for _ in range(2):
        cli.output("softmax", "x.csv", "-o", "p.csv", environment=environment)
        assert (cli.directory / "p.csv").read_text() == P
        os.chmod(cli.directory / "p.csv", 0o604)
    cli.output("softmax", "x.csv", "-o", "p.csv", environment=environment)
    assert stat.S_IMODE(os.stat(cli.directory / "p.csv").st_mode) == 0o604
    os.symlink("p.csv", cli.directory / "link.csv")
    cli.output("sparsemax", "-o", "link.csv", stdin=b"9,0\n", environment=environment)
    assert os.path.islink(cli.directory / "link.csv") and (cli.directory / "p.csv").read_text() == "1,0\n"
    assert sorted(os.listdir(cli.directory)) == ["link.csv", "p.csv", "x.csv"]
    name = "n" * 250 + ".csv"  # as long as names may be
    cli.output("softmax", "x.csv", "-o", name, environment=environment)
    assert (cli.directory / name).read_text() == P


@pytest.mark.parametrize("error", ["2>&-", "2>/dev/full"])
def test_no_standard_error(cli, error):
    cli.write("x.csv", X)
    for arguments, status in ("softmax no.csv", 2), ("softmax x.csv", 0):
        done = subprocess.run(["sh", "-c", f"{cli.program} {arguments} {error}"], cwd=cli.directory, capture_output=True)
        assert (done.returncode, done.stdout.decode(), done.stderr) == (status, P if status == 0 else "", b"")


def test_messages_do_not_reach_the_output(cli):
    cli.save("x.npy", np.zeros((1, 2)))
    script = f"{cli.program} softmax x.npy -o p.csv 2>&-"
    assert subprocess.run(["sh", "-c", script], cwd=cli.directory).returncode == 0
    assert (cli.directory / "p.csv").read_text() == P


@pytest.mark.parametrize("asked", ["--help", "--version", "softmax --help", "list", "man"])
def test_full_disk_for_help(cli, asked):
    done = subprocess.run(["sh", "-c", f"{cli.program} {asked} >/dev/full"], cwd=cli.directory, capture_output=True)
    assert done.returncode == 1
    assert done.stderr.startswith(b"isentropic: standard output: ")


@pytest.mark.parametrize("absolute", [False, True])
def test_link_to_a_file_that_is_yet_to_be_made(cli, absolute):
    cli.write("x.csv", X)
    (cli.directory / "folder").mkdir()
    os.symlink("second.csv", cli.directory / "folder" / "first.csv")
    os.symlink(cli.directory / "folder/first.csv" if absolute else "folder/first.csv", cli.directory / "link.csv")
    cli.output("softmax", "x.csv", "-o", "link.csv")
    assert os.path.islink(cli.directory / "link.csv")
    assert (cli.directory / "folder" / "second.csv").read_text() == P


def test_links_in_a_circle(cli):
    cli.write("x.csv", X)
    os.symlink("b.csv", cli.directory / "a.csv")
    os.symlink("a.csv", cli.directory / "b.csv")
    assert cli.error("softmax", "x.csv", "-o", "a.csv") == "a.csv: Too many levels of symbolic links"


def test_signals_keep_the_old_file(cli):
    cli.write("old.csv", X)
    os.symlink("old.csv", cli.directory / "p.csv")
    cli.save("x.npy", np.random.default_rng(6).normal(size=(5000, 1000)))
    process = subprocess.Popen([cli.program, "softmax", "x.npy", "-o", "p.csv"], cwd=cli.directory)
    while not is_writing(cli, process):
        assert process.poll() is None
        time.sleep(0.001)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert sorted(os.listdir(cli.directory)) == ["old.csv", "p.csv", "x.npy"]
    assert (cli.directory / "p.csv").read_text() == X


def test_ignored_signals_stay_ignored(cli):
    process = start_writing(cli, "sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
    assert cli.files() == {"p.csv": P.encode() * 100}


def test_failure_keeps_the_old_file(cli):
    cli.write("p.csv", "old")
    cli.error("softmax", cli.write("x.csv", "1,2\n3,x\n"), "-o", "p.csv")
    cli.error("softmax", cli.write("x.csv", X), "-o", "p.csv", "--temperature", 0)
    assert cli.files()["p.csv"] == b"old"


def test_file_is_replaced_in_place(cli):
    cli.write("x.csv", X)
    os.chmod(cli.directory / "x.csv", 0o640)
    os.symlink("x.csv", cli.directory / "link.csv")
    cli.output("softmax", "link.csv", "-o", "link.csv")
    assert os.path.islink(cli.directory / "link.csv")
    assert (cli.directory / "x.csv").read_text() == P
    assert stat.S_IMODE(os.stat(cli.directory / "x.csv").st_mode) == 0o640
    assert sorted(cli.files()) == ["link.csv", "x.csv"]


def test_new_file_has_ordinary_permissions(cli):
    cli.output("softmax", cli.write("x.csv", X), "-o", "p.csv")
    assert os.stat(cli.directory / "p.csv").st_mode == os.stat(cli.directory / "x.csv").st_mode


def test_devices_are_not_replaced(cli):
    assert cli.output("softmax", cli.write("x.csv", X), "-o", "/dev/stdout") == P
    assert cli.output("softmax", "x.csv", "-o", "/dev/null") == ""
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_closed_pipe(cli):
    cli.save("x.npy", np.zeros((10000, 100)))
    done = subprocess.run(f"{cli.program} softmax x.npy | head -n 1", shell=True, cwd=cli.directory, capture_output=True)
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
