"""Files larger than memory: the same results in parts, in bounded memory, with a bar that shows how far it is."""

import fcntl
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import numpy as np
import pytest


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(12).normal(size=(30_000, 61)).astype(np.float32)  # several parts, the last one shorter


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("ending", ["csv", "npy", "npz", "jsonl", "safetensors"])
def test_parts_give_the_whole(cli, x, ending, threads):
    cli.save("x.npy", x)
    cli.output("log_softmax", "x.npy", "--threads", threads, "-o", f"y.{ending}")
    cli.output("softmax", f"y.{ending}", "--threads", threads, "-o", "p.npy")
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(cli.load("p.npy"), e / e.sum(axis=1, keepdims=True), rtol=2e-5)
    cli.output("logsumexp", f"y.{ending}", "-o", "l.npz")
    with np.load(cli.directory / "l.npz") as file:
        [key] = file
        assert file[key].shape == (len(x),) and np.abs(file[key]).max() < 2e-6


def test_labels_stay_with_their_rows(cli):
    rows = 200_000
    cli.write("x.csv", "name,a,b\n" + "".join(f"row{i},{i % 7},{i % 5}\n" for i in range(rows)))
    lines = cli.output("log_softmax", "x.csv").splitlines()
    assert lines[0] == "name,a,b" and len(lines) == rows + 1
    assert all(line.startswith(f"row{i},") for i, line in enumerate(lines[1:]))


def test_long_quoted_cell_between_parts(cli):
    text = "x\n" * 600_000  # longer than what is read at once
    file = cli.write("x.csv", f'a,b\n1,"{text}"\n2,"{text}"\n')
    assert cli.output("softmax", file) == f'a,b\n1,"{text}"\n1,"{text}"\n'
    message = cli.error("softmax", cli.write("x.csv", f'1,"{text}\n'))
    assert message == "x.csv:1:2: a quote is opened and never closed"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("1,x\n", "x.csv:895001:2: 'x' is not a number"),
        ("1\n", "x.csv:895001:2: the line ends after 1 of 2 cells"),
        ("\n", "x.csv:895001: empty line"),
        ('1,"2\n', "x.csv:895001:2: a quote is opened and never closed"),
        ('1,"2"3\n', "x.csv:895001:2: there is text after the closing quote"),
    ],
)
@pytest.mark.parametrize("later", ["1,y\n", "\n"])
def test_first_mistake_is_reported(cli, threads, mistake, message, later):
    lines = ["1,2\n"] * 900_000
    lines[895_000], lines[895_003] = mistake, later
    cli.write("x.csv", "".join(lines))
    assert cli.error("softmax", "x.csv", "--threads", threads, "-o", "p.csv") == message


def sparse(path, rows, cols):
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, cols)}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * rows * cols)


@pytest.mark.parametrize("command", [["logsumexp", "-o", "y.npy"], ["softmax", "-o", "p.npy"]])
def test_ten_times_the_memory(cli, command):
    if cli.sanitized:
        pytest.skip("the address sanitizer takes memory of its own")
    limit, rows, cols = 51 * 2**20, 2**12, 2**15  # a file of 512 MiB
    sparse(cli.directory / "x.npy", rows, cols)
    name, *rest = command
    done = subprocess.run(
        [cli.program, name, "x.npy", *rest, "--threads", "2"],
        cwd=cli.directory,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if name == "logsumexp":
        y = cli.load("y.npy")
        assert y.shape == (rows,) and np.allclose(y, np.log(cols))


def in_terminal(cli, *arguments, seconds=None, columns=0):
    """What the program shows on a terminal; ended by Ctrl-C after so many seconds."""
    terminal, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen(
        [cli.program, *arguments], cwd=cli.directory, stdin=subprocess.DEVNULL, stdout=other, stderr=other
    )
    os.close(other)
    shown = b""
    end = time.monotonic() + (60 if seconds is None else seconds)
    while time.monotonic() < end:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if seconds is not None and b"%" in shown:
            break
    if seconds is not None:
        process.send_signal(signal.SIGINT)
    status = process.wait(timeout=60)
    os.close(terminal)
    return status, shown.decode()


@pytest.mark.parametrize("columns", [0, 30, 12])
def test_progress_and_interruption(cli, columns):
    sparse(cli.directory / "x.npy", 2**17, 2**15)  # 16 GiB: longer than a second anywhere
    status, shown = in_terminal(cli, "softmax", "x.npy", "-o", "p.npz", "--threads", "1", seconds=50, columns=columns)
    assert status == -signal.SIGINT
    assert "%" in shown and (("% [" in shown and "B/s" in shown and "left" in shown) or columns > 0)
    for line in re.split("\r\x1b\\[K", shown):
        assert len(line.split("\r")[0]) < (columns or 80) or "^C" in line
    assert os.listdir(cli.directory) == ["x.npy"]


def test_no_progress_when_quick_or_quiet(cli):
    cli.write("x.csv", "1,2\n")
    assert in_terminal(cli, "softmax", "x.csv", "-o", "p.csv") == (0, "")


@pytest.mark.parametrize("command", ["softmax x.csv | {0} entropy -", "softmax x.csv | {0} entropy"])
def test_pipes(cli, command):
    cli.write("x.csv", "name,a,b\ncat,1,1\ndog,0,-inf\n")
    done = subprocess.run(f"{cli.program} {command.format(cli.program)}", shell=True, cwd=cli.directory, capture_output=True)
    assert done.stderr == b"" and done.returncode == 0
    header, *rows = done.stdout.decode().splitlines()
    assert header == "name,entropy"
    assert [float(row.split(",")[1]) for row in rows] == pytest.approx([np.log(2), 0], abs=1e-15)


@pytest.mark.parametrize("ending", ["npy", "npz", "jsonl", "safetensors"])
def test_binary_pipes(cli, x, ending):
    """Both ends: a pipe of a format that does not say how many rows there are, and one of a format that does."""
    cli.save("x.npy", x)
    cli.output("softmax", "x.npy", "-o", f"p.{ending}")
    want = cli.output("entropy", f"p.{ending}")
    command = f"cat p.{ending} | {cli.program} entropy - --format-in {ending}"
    done = subprocess.run(command, shell=True, cwd=cli.directory, capture_output=True)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert done.stdout.decode() == want


@pytest.mark.parametrize("source", ["x.npy", "x.csv"])
def test_reader_that_leaves(cli, x, source):
    """`| head -1` ends the program without a word, and soon."""
    cli.save("x.npy", x)
    if source == "x.csv":
        cli.output("softmax", "x.npy", "-o", "x.csv")
    command = f'{cli.program} softmax {source} --threads 2 | head -n 1; echo "${{PIPESTATUS[0]}}" >&2'
    start = time.monotonic()
    done = subprocess.run(["bash", "-c", command], cwd=cli.directory, capture_output=True)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b"141\n"  # ended by SIGPIPE, as cat is
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("options", "header", "row"),
    [
        ([], b"a,b\n", b"1,2\n"),
        ([], b"", b"1,2\n"),
        (["--no-header"], b"", b"0,1\n"),
        (["--format-in", "jsonl"], b"", b"[1, 2]\n"),
    ],
)
def test_rows_come_out_as_they_arrive(cli, threads, options, header, row):
    """From a pipe whose writer waits for the answer to each row."""
    command = [cli.program, "softmax", "--threads", str(threads), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        os.set_blocking(process.stdout.fileno(), False)
        process.stdin.write(header)
        for _ in range(5):
            process.stdin.write(row)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], 20)
            assert ready, "no row came out while the writer waited"
            said = (process.stdout.read() or b"").decode()
            while said.count("\n") < 1 or not said.splitlines()[-1].startswith("0.26"):  # the header, then the row
                select.select([process.stdout], [], [], 20)
                said += (process.stdout.read() or b"").decode()
        process.stdin.close()
        assert process.wait(20) == 0


def test_pipes_that_do_not_block(cli):
    """Descriptors that do not block, as from Node and some shells: the program waits at both ends."""
    (reading, feeding), (draining, writing) = os.pipe(), os.pipe()
    for end in (reading, writing):
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
    rows = b"1,1\n" * 50_000
    with subprocess.Popen([cli.program, "softmax"], stdin=reading, stdout=writing, stderr=subprocess.PIPE) as run:
        os.close(reading), os.close(writing)
        feeder = threading.Thread(target=lambda: [time.sleep(0.2), os.write(feeding, b"1,1\n"), write_all(feeding, rows)])
        feeder.start()
        time.sleep(0.5)  # until its output is full
        with open(draining, "rb") as out:
            assert out.read() == b"0.5,0.5\n" * 50_001
        feeder.join()
        assert (run.stderr.read(), run.wait()) == (b"", 0)


def write_all(descriptor, data):
    with open(descriptor, "wb") as file:
        file.write(data)
