"""`isentropic explore`: the page with the file's rows, and who may ask for it. What the page does with them: tests/wasm."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess

import numpy as np
import pytest

PAGE = (
    "<!doctype html><title>stands for the explorer</title>"
    '<script type="text/plain" id="wasm">AA==</script><script type="application/json" id="rows">{}</script>'
    '<script id="library">class Library {}</script>'
)


@pytest.fixture
def explorer(cli, tmp_path_factory):
    """The program's surroundings: a page."""
    path = tmp_path_factory.mktemp("share") / "explorer.html"
    path.write_text(PAGE)
    return {"ISENTROPIC_EXPLORER": str(path)}


def rows_of(page):
    return json.loads(re.search(r'id="rows">(.*?)</script>', page)[1])


@contextlib.contextmanager
def served(cli, explorer, *arguments):
    """The port of a program that runs meanwhile, and the program."""
    program = subprocess.Popen(
        [cli.program, "explore", *arguments],
        cwd=cli.directory,
        env={"PATH": os.environ["PATH"], **explorer},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", program.stdout.readline())[1]
        yield int(port), program
    finally:
        program.kill()
        program.communicate()


def asked(port, method="GET", target="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, target, headers=headers)
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read().decode()


def test_rows_of_a_file(cli, explorer):
    cli.write("scores.csv", "id,a,</script><b>,c\nfirst,1,2.5,-inf\n<i>,0.1,inf,-1e-300\n")
    with served(cli, explorer, "scores.csv") as (port, _):
        status, headers, page = asked(port)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert rows_of(page) == {
        "names": ["a", "</script><b>", "c"],
        "rows": [{"label": "first", "scores": [1, 2.5, "-inf"]}, {"label": "<i>", "scores": [0.1, "inf", -1e-300]}],
    }
    before, after = PAGE.split("{}</script><script id")
    assert page.startswith(before)
    assert page.endswith("</script><script id" + after)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_are_exact(cli, explorer, dtype):
    x = np.random.default_rng(1).standard_normal((3, 50)).astype(dtype)
    cli.save("x.npy", x)
    page = cli.output("explore", "x.npy", "-o", "-", environment=explorer)
    found = rows_of(page)
    assert found["names"] is None
    assert [row["scores"] for row in found["rows"]] == x.astype(float).tolist()


def test_into_a_file(cli, explorer):
    cli.output("explore", "-", "--rows", "1:2", "-o", "page.html", stdin=b"1,2\n3,4\n5,6\n", environment=explorer)
    assert rows_of((cli.directory / "page.html").read_text())["rows"] == [{"label": None, "scores": [3, 4]}]
    assert cli.output("explore", "-o", "-", environment=explorer) == PAGE  # examples alone


def test_more_rows_than_a_page_takes(cli, explorer):
    cli.save("x.npy", np.zeros((1001, 2)))
    done = cli("explore", "x.npy", "-o", "page.html", environment=explorer)
    assert done.returncode == 0
    assert done.stderr.decode() == "isentropic: the page has the first 1000 of 1001 rows; --rows A:B chooses others\n"
    assert len(rows_of((cli.directory / "page.html").read_text())["rows"]) == 1000


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("a,b\n1,2\n1,abc\n", [], "scores.csv:3:2: 'abc' is not a number"),
        ("a,b\n", [], "scores.csv: there are no scores to explore"),
        ("1,2\n", ["--port", "65536"], "explore: --port must be at most 65535, got 65536"),
        ("1,2\n", ["--port", "web"], "--port must be a whole number of at least 0, got 'web'"),
        ("1,2\n", ["--port", "8000", "-o", "page.html"], None),
    ],
)
def test_refused_before_it_serves(cli, explorer, content, arguments, message):
    cli.write("scores.csv", content)
    found = cli.error("explore", "scores.csv", *arguments, environment=explorer)
    assert found == message or message is None


def test_a_page_in_a_file_opens_no_browser(cli, explorer):
    cli.write("scores.csv", "1,2\n")
    for options in ([], ["--no-browser"]):
        assert cli.output("explore", "scores.csv", "-o", "page.html", *options, environment=explorer) == ""
        assert (cli.directory / "page.html").read_text()
        (cli.directory / "page.html").unlink()


def test_without_a_page(cli, tmp_path_factory):
    """Only the program, as after copying it."""
    alone = tmp_path_factory.mktemp("installed") / "bin/isentropic"
    alone.parent.mkdir()
    shutil.copy(cli.program, alone)
    cli.program = str(alone)
    message = cli.error("explore", status=1)
    assert "share/isentropic/explorer.html" in message and "`scripts/wasm && pip install .` makes the page" in message
    assert cli.error("explore", "no.csv") == "no.csv: No such file or directory"
    page = alone.parent.parent / "share/isentropic/explorer.html"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE)
    assert cli.output("explore", "-o", "-") == PAGE
    cli.write("page.html", "<title>another</title>")
    assert "scripts/explorer did not write this page" in cli.error("explore", environment={"ISENTROPIC_EXPLORER": "page.html"})
    assert "none.html" in cli.error("explore", environment={"ISENTROPIC_EXPLORER": "none.html"})


def test_who_may_ask(cli, explorer):
    with served(cli, explorer) as (port, _):
        assert asked(port, "HEAD")[2] == ""
        assert int(asked(port, "HEAD")[1]["Content-Length"]) == len(PAGE)
        assert asked(port, Host=f"localhost:{port}")[0] == 200
        assert asked(port, target="/?x=1")[0] == 200
        for host in ("example.org", f"example.org:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1:{port}.example.org", ""):
            status, _, text = asked(port, Host=host)
            assert (status, text) == (421, "421 Misdirected Request"), host
        assert asked(port, target="/../../etc/passwd")[0] == 404
        assert asked(port, "POST")[0] == 405
        headers = asked(port)[1]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Access-Control-Allow-Origin"] is None
        for address in {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)} - {"127.0.0.1"}:
            if not address.startswith("127."):
                with pytest.raises(OSError):
                    socket.create_connection((address, port), timeout=5)


def test_other_connections(cli, explorer):
    """Some say nothing, some nonsense, some too much; others are answered meanwhile."""
    with served(cli, explorer) as (port, program):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for text in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
                one.sendall(text)
                assert one.recv(100).split(b" ")[1] in (b"400", b"421"), text
        start = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        for lines in (10_000, 100_000):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
                with contextlib.suppress(OSError):  # it may hang up before the end
                    one.sendall(start + b"a: b\r\n" * lines + b"\r\n")
                with contextlib.suppress(OSError):
                    assert b"200 OK" not in one.recv(100)
        assert asked(port)[0] == 200
        for one in silent:
            one.close()
        assert program.poll() is None


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ends_by_signals(cli, explorer, sent):
    with served(cli, explorer, "--quiet") as (port, program):
        taken = cli.error("explore", "--port", port, environment=explorer)
        assert taken == f"explore: --port {port} cannot be used: Address already in use"
        program.send_signal(sent)
        assert program.wait(timeout=20) == -sent
        assert program.stderr.read() == ""
    # The port can be had at once, though its connections are remembered.
    with served(cli, explorer, "--port", str(port)) as (again, _):
        assert again == port
        assert asked(again)[0] == 200


def test_report_with_the_library(cli, explorer):
    """What it is for: tests/wasm."""
    cli.write("x.csv", "a,b,@DATA@\n1,2,3\n-inf,0.5,inf\n")
    arguments = ["compare", "x.csv", "--format", "html"]
    with_it, without = (cli.output(*arguments, *more, environment=explorer) for more in ([], ["--static"]))
    for part in (
        '<script type="text/plain" id="wasm">AA==</script>',
        "<script>class Library {}</script>",
        "'wasm-unsafe-eval'",
    ):
        assert part in with_it
        assert part not in without
    assert '"whole":{"first":0,"rows":2}' in with_it
    assert '"whole":{"first":0,"rows":0}' in without
