"""entropic transport: the library's bits, its words, and files that do not fit."""

import subprocess

import numpy as np
import pytest

import entropic


@pytest.fixture
def problem(cli):
    random = np.random.default_rng(0)
    a, b, cost = random.random(5), random.random(4), random.random((5, 4))
    a, b = a / a.sum(), b / b.sum()
    cli.save("a.npy", a[None])
    cli.save("b.npy", b[:, None])
    cli.save("cost.npy", cost)
    return a, b, cost


FILES = ("--a", "a.npy", "--b", "b.npy", "--cost", "cost.npy")


def test_the_optimum_and_its_plan(cli, problem):
    want = entropic.optimal_transport(*problem)
    header, row = cli.output("transport", *FILES, "-o", "plan.npy").splitlines()
    assert header == "cost,gap,status"
    cost, gap, status = row.split(",")
    assert (float(cost), float(gap), status) == (want.cost, want.gap, "optimal")
    np.testing.assert_array_equal(cli.load("plan.npy"), want.plan)
    plan = np.loadtxt(cli.output("transport", *FILES, "-o", "-").splitlines(), delimiter=",")
    np.testing.assert_array_equal(plan, want.plan)


def test_with_entropy(cli, problem):
    want = entropic.sinkhorn(*problem, epsilon=0.1)
    header, row = cli.output("transport", *FILES, "--epsilon", "0.1", "-o", "plan.csv").splitlines()
    assert header == "cost,lower_bound,upper_bound,marginal_error,iterations,status"
    assert [float(cell) for cell in row.split(",")[:5]] == [
        want.cost,
        want.lower_bound,
        want.upper_bound,
        want.marginal_error,
        want.iterations,
    ]
    assert row.endswith(",converged")


def test_a_part_of_the_masses(cli, problem):
    a, b, cost = problem
    want = entropic.partial_transport(a, b, cost, mass=0.6)
    header, row = cli.output("partial_transport", *FILES, "--mass", 0.6, "-o", "plan.npy").splitlines()
    assert header == "cost,multiplier,gap,status" and row.endswith(",optimal")
    assert [float(cell) for cell in row.split(",")[:3]] == [want.cost, want.multiplier, want.gap]
    np.testing.assert_array_equal(cli.load("plan.npy"), want.plan)
    message = cli.error("partial_transport", *FILES, "--mass", 1.5)
    assert message.startswith("partial_transport: mass must be at most the sum of a and that of b, ")
    message = cli.error("partial_transport", *FILES, "--mass", -1)
    assert message == "partial_transport: --mass must be at least 0 and finite, got -1"
    assert "--mass is required" in cli.error("partial_transport", *FILES)
    cli.save("cost.npy", np.where(np.eye(5, 4) > 0, cost, np.inf))
    assert cli.error("partial_transport", *FILES, "--mass", 0.99, status=1).startswith("partial_transport: infeasible")


def test_what_is_refused(cli, problem):
    cli.write("a.csv", "0.5,0.5\n")
    cli.write("b.csv", "0.5\n0.5\n")
    cli.write("c.csv", "inf,inf\n0,1\n")
    files = ("--a", "a.csv", "--b", "b.csv", "--cost", "c.csv")
    message = cli.error("transport", *files, "-o", "plan.csv", status=1)
    assert message == "transport: infeasible, every plan needs an arc of cost inf"
    message = cli.error("transport", *files[:4], "--cost", "cost.npy", "-o", "plan.csv")
    assert message == "transport: cost.npy must be 2 x 2, the masses of --a by those of --b, got 5 x 4"
    message = cli.error("transport", "--a", "c.csv", *files[2:])
    assert message == "transport: c.csv must have one row or one column of masses, got 2 x 2"
    message = cli.error("transport", *files, "--epsilon", "0")
    assert message == "transport: --epsilon must be above 0 and finite, got 0"
    assert "--cost" in cli.error("transport", *files[:4])


def test_options_of_the_iteration_and_of_masses(cli, problem):
    a, b, cost = problem
    want = entropic.sinkhorn(a, b, cost, epsilon=0.01, tolerance=0, max_iterations=3)
    row = cli.output("transport", *FILES, "--epsilon", 0.01, "--tolerance", 0, "--max_iterations", 3).splitlines()[1]
    assert float(row.split(",")[0]) == want.cost and row.endswith(",3,not converged")
    assert cli.error("transport", *FILES, "--tolerance", 0.1).startswith("--tolerance requires --epsilon")
    cli.save("a.npy", (a * (1 + 3e-5)).astype(np.float32))  # the sums of a float32 file may be as far off
    cli.output("transport", *FILES)
    cli.save("a.npy", a * (1 + 3e-5))
    message = cli.error("transport", *FILES)
    assert message.startswith("optimal_transport: a and b must have equal sums within 1e-06 of them")
    cli.output("transport", *FILES, "--mass_tolerance", 1e-4)


def test_no_plan_without_its_result(cli):
    cli.write("a.csv", "0.5,0.5\n")
    cli.write("c.csv", "0,1\n1,0\n")
    with open("/dev/full", "wb") as full:
        arguments = [cli.program, "transport", "--a", "a.csv", "--b", "a.csv", "--cost", "c.csv", "-o", "plan.npy"]
        assert subprocess.run(arguments, cwd=cli.directory, stdout=full, stderr=subprocess.PIPE).returncode == 2
    assert not (cli.directory / "plan.npy").exists()


def test_form_of_plan_and_result(cli):
    cli.write("a.csv", "0.25,0.75\n"), cli.write("b.csv", "0.5,0.5\n"), cli.write("c.csv", "0.5,1\n1,0.123456\n")
    given = ["transport", "--a", "a.csv", "--b", "b.csv", "--cost", "c.csv", "--precision", 3]
    assert cli.output(*given).splitlines()[1].startswith("0.437,")
    assert cli.output(*given, "-o", "-", "--format-out", "jsonl", "--epsilon", 0.1).startswith("[0.25, ")
    assert cli.output(*given, "-o", "plan.dat", "--format-out", "csv").splitlines()[1].startswith("0.437,")
    assert cli.files()["plan.dat"] == b"0.25,0\n0.25,0.5\n"
