"""Shell habits: completion, the manual page, colours only where they are wanted."""

import json
import os
import pty
import select
import shutil
import subprocess

import pytest


def completed(cli, *words):
    """What bash offers for the last of the words."""
    cli.write("completion.bash", cli.output("completion", "bash"))
    script = (
        'source ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _isentropic; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=cli.directory, capture_output=True)
    assert done.stderr == b""
    return done.stdout.decode().split()


def test_bash_completion(cli):
    cli.write("scores.csv", "1\n")
    assert completed(cli, "isentropic", "spar") == ["sparsemax", "sparsemax_loss"]
    assert {"softmax", "compare", "list"} <= set(completed(cli, "isentropic", ""))
    assert completed(cli, "isentropic", "softmax", "--temp") == ["--temperature"]
    assert completed(cli, "isentropic", "--quiet", "compare", "--format", "") == ["text", "json", "html"]
    assert completed(cli, "isentropic", "softmax", "sc") == []  # a file: readline's part, as test_tab_key sees
    assert completed(cli, "isentropic", "compare", "--format", "=", "js") == ["json"]
    assert "--version" in completed(cli, "isentropic", "--")


def test_bash_completion_of_lists(cli):
    assert completed(cli, "isentropic", "compare", "--maps", "spar") == ["sparsemax"]
    assert completed(cli, "isentropic", "compare", "--maps", "softmax,spar") == ["softmax,sparsemax"]
    cli.write("nothing.csv", "1\n")
    assert completed(cli, "isentropic", "compare", "--maps", "no") == []
    assert completed(cli, "isentropic", "softmax", "--temperature", "") == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completion(cli):
    cli.write("isentropic.fish", cli.output("completion", "fish"))
    cli.write("my scores.csv", "1\n")
    # The name of a command that is not in PATH is completed as a file is.
    path = f"{os.path.dirname(cli.program)}:{os.environ['PATH']}"

    def offered(line):
        script = "source isentropic.fish; complete -C $argv[1]"
        environment = {"PATH": path, "HOME": str(cli.directory), "LANG": "C.UTF-8"}
        done = subprocess.run(["fish", "-c", script, line], cwd=cli.directory, capture_output=True, env=environment)
        assert done.stderr == b""
        return [word.split("\t")[0] for word in done.stdout.decode().splitlines()]

    assert offered("isentropic sigs") == ["sigsoftmax"]
    assert "--temperature" in offered("isentropic softmax --temp")
    assert offered("isentropic compare --format ") == ["html", "json", "text"]
    assert offered("isentropic compare --maps softmax,spar") == ["softmax,sparsemax"]
    assert offered("isentropic softmax --temperature m") == []
    assert offered("isentropic softmax m") == ["my scores.csv"]
    assert offered("isentropic softmax x.csv -o m") == ["my scores.csv"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completion(cli):
    cli.write("_isentropic", cli.output("completion", "zsh"))
    script = """
    compdef() { : }
    _describe() { print -r -- "$1: ${(P)2}" }
    _files() { print files }
    source ./_isentropic
    words=("$@") CURRENT=$#
    _isentropic
    """

    def offered(*words):
        done = subprocess.run(["zsh", "-fc", script, "zsh", *words], cwd=cli.directory, capture_output=True)
        assert done.stderr == b""
        return done.stdout.decode()

    assert offered("isentropic", "so").startswith("command: ") and "sparsemax:" in offered("isentropic", "so")
    assert "--temperature:" in offered("isentropic", "softmax", "-")
    assert offered("isentropic", "softmax", "x").strip() == "files"
    assert offered("isentropic", "softmax", "--temperature", "x") == ""


def typed(cli, shell, setup, *keys):
    """Types the keys at the prompt of an interactive shell, each once the one before has had its answer."""
    process_id, terminal = pty.fork()
    if process_id == 0:
        os.chdir(cli.directory)
        path = f"{os.path.dirname(cli.program)}:{os.environ['PATH']}"
        os.execvpe(shell[0], shell, {"PATH": path, "HOME": str(cli.directory), "TERM": "dumb", "PS1": "> "})
    shown = b""
    try:
        for key in (setup, *keys, "exit\n"):
            os.write(terminal, key.encode())
            # The shell is done with a key when it shows nothing more; with exit it ends.
            while select.select([terminal], [], [], 20 if key == "exit\n" else 2)[0]:
                piece = os.read(terminal, 65536)
                if not piece:
                    break
                shown += piece
    except OSError:  # what Linux says of a terminal that nobody writes to any more
        pass
    os.close(terminal)
    os.waitpid(process_id, 0)
    return shown.decode()


@pytest.mark.parametrize(
    ("shell", "setup"),
    [
        (["bash", "--norc", "-i"], "source ./completion\n"),
        (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source ./completion\n"),
    ],
    ids=["bash", "zsh"],
)
def test_tab_key(cli, shell, setup):
    """A command, an option, one of its words and a file, all completed at a real prompt: then the line runs."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    cli.write("completion", cli.output("completion", shell[0]))
    cli.write("scores of 'today'.csv", "name,a,b\ncat,1,2\n")
    line = ["isentropic comp\t", "a\t", "--maps softmax,spa\t", " --form\t", " js\t", "sco\t", "> out.json\n"]
    shown = typed(cli, shell, setup, *line)
    assert (cli.directory / "out.json").exists(), shown
    result = json.loads((cli.directory / "out.json").read_text())
    assert result["label"] == "cat" and len(result["maps"]) == 2, shown


def test_completion_of_another_shell(cli):
    assert cli.error("completion", "ksh") == "completion: SHELL must be bash, zsh or fish, got 'ksh'"


def test_manual_page(cli):
    page = cli.output("man")
    for command in ["compare", "softmax", "gamma", "log_softmax"]:
        assert f".SS isentropic {command}\n" in page
    assert ".B Q\n" in page and ".B SHELL\n" in page
    assert "\\-\\-temperature" in page and "NO_COLOR" in page and "Exit status: 0 done" in page
    if shutil.which("man"):
        done = subprocess.run(
            ["man", "--warnings", "-l", "-"], input=page.encode(), capture_output=True, env={"PATH": os.environ["PATH"]}
        )
        assert done.stderr == b"" and b"isentropic softmax" in done.stdout


def shown(cli, *arguments, **environment):
    """What a terminal gets."""
    terminal, other = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", **environment}
    subprocess.run([cli.program, *arguments], cwd=cli.directory, stdout=other, stderr=other, stdin=other, env=environment)
    os.close(other)
    text = b""
    try:
        while piece := os.read(terminal, 65536):
            text += piece
    except OSError:
        pass
    os.close(terminal)
    return text.decode()


def test_colours(cli):
    cli.write("x.csv", "1,2\n")
    assert "\x1b[34m█" in shown(cli, "compare", "x.csv")
    assert "\x1b[1;31misentropic:\x1b[0m no.csv: No such" in shown(cli, "softmax", "no.csv")
    for plain in {"NO_COLOR": "1"}, {"TERM": "dumb"}:
        assert "\x1b" not in shown(cli, "compare", "x.csv", **plain) + shown(cli, "softmax", "no.csv", **plain)
    assert "\x1b" not in cli.output("compare", "x.csv", environment={"TERM": "xterm", "LANG": "C.UTF-8"})
