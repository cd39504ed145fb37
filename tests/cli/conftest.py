"""Runs the `isentropic` that the environment variable ISENTROPIC_CLI names, in a new empty directory."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

# What a background job is started with would reach the programs: they are to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


class Cli:
    """The program, and a directory for its files."""

    def __init__(self, program, directory):
        self.program = program
        self.directory = directory

    @property
    def sanitized(self):
        """Whether it has the address sanitizer: then it only has the target SSE4, and takes more memory."""
        return b"__asan_init" in Path(self.program).read_bytes()

    def __call__(self, *arguments, stdin=b"", environment=None):
        return subprocess.run(
            [self.program, *map(str, arguments)],
            input=stdin,
            cwd=self.directory,
            capture_output=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], **(environment or {})},
        )

    def output(self, *arguments, **options):
        """Standard output of a run that must succeed without a word on standard error."""
        done = self(*arguments, **options)
        assert (done.returncode, done.stderr.decode()) == (0, "")
        return done.stdout.decode()

    def error(self, *arguments, status=2, **options):
        """The message of a run that must fail without a result, nor a new file."""
        before = self.files()
        done = self(*arguments, **options)
        assert done.returncode == status, done.stderr.decode()
        assert done.stdout == b""
        assert self.files() == before
        message = done.stderr.decode()
        assert message.startswith("isentropic: ") and message.count("\n") == 1
        return message.removeprefix("isentropic: ").removesuffix("\n")

    def files(self):
        return {path.name: path.read_bytes() for path in self.directory.iterdir() if path.is_file()}

    def write(self, name, content):
        data = content.encode() if isinstance(content, str) else content
        (self.directory / name).write_bytes(data)
        return name

    def save(self, name, array):
        np.save(self.directory / name, array)
        return name

    def load(self, name):
        return np.load(self.directory / name, allow_pickle=False)


@pytest.fixture
def cli(tmp_path):
    program = os.environ.get("ISENTROPIC_CLI")
    if not program:
        pytest.fail("ISENTROPIC_CLI must be the path of the isentropic program")
    return Cli(os.path.abspath(program), tmp_path)


def parsed(text, separator=","):
    """The numbers of a CSV without names."""
    return np.array([[float(cell) for cell in line.split(separator)] for line in text.splitlines()])


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
