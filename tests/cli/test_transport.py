"""isentropic transport: the library's bits, its words, and files that do not fit."""

import subprocess

import numpy as np
import pytest

import isentropic


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
    want = isentropic.optimal_transport(*problem)
    header, row = cli.output("transport", *FILES, "-o", "plan.npy").splitlines()
    assert header == "cost,gap,status"
    cost, gap, status = row.split(",")
    assert (float(cost), float(gap), status) == (want.cost, want.gap, "optimal")
    np.testing.assert_array_equal(cli.load("plan.npy"), want.plan)
    plan = np.loadtxt(cli.output("transport", *FILES, "-o", "-").splitlines(), delimiter=",")
    np.testing.assert_array_equal(plan, want.plan)


def test_with_entropy(cli, problem):
    want = isentropic.sinkhorn(*problem, epsilon=0.1)
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


@pytest.mark.parametrize("command", [("transport",), ("partial_transport", "--mass", "1"), ("unbalanced_sinkhorn",)])
def test_costs_that_begin_like_names(cli, problem, command):
    """0,1,2 is a row of distances too; the option that the message advises exists."""
    cli.write("a.csv", "0.5,0.25,0.25\n")
    cli.write("cost.csv", "0,1,2\n1,0,1.5\n2,1.5,0\n")
    files = ("--a", "a.csv", "--b", "a.csv", "--cost", "cost.csv")
    further = ("--epsilon", "1", "--penalty", "1") if command[0] == "unbalanced_sinkhorn" else ()
    assert "--no-header" in cli.error(*command, *files, *further)
    assert float(cli.output(*command, *files, *further, "--no-header").splitlines()[1].split(",")[0]) < 1
    cli.write("cost.csv", "0,1,2\n1,0,1\n2,1,0\n")  # whole numbers only: a row
    assert float(cli.output(*command, *files, *further).splitlines()[1].split(",")[0]) < 1


@pytest.mark.parametrize("command", [("transport",), ("partial_transport", "--mass", "1"), ("unbalanced_sinkhorn",)])
def test_names_that_are_in_another_order(cli, command):
    """Masses and costs are matched by position, so that names in another order are a mistake."""
    further = ("--epsilon", "1", "--penalty", "1") if command[0] == "unbalanced_sinkhorn" else ()
    cli.write("a.csv", "x,0.5\ny,0.5\n")
    cli.write("b.csv", "u,v\n0.25,0.75\n")
    cli.write("c.csv", "name,u,v\nx,0,1\ny,1,0\n")
    files = ("--a", "a.csv", "--b", "b.csv", "--cost", "c.csv")
    cli.output(*command, *files, *further)
    cli.write("b.csv", "v,u\n0.75,0.25\n")
    by_position = "masses and costs are matched by position"
    assert cli.error(*command, *files, *further, "-o", "plan.csv") == (
        f"{command[0]}: b.csv names mass 0 'v', and c.csv names column 0 'u'; {by_position}"
    )
    cli.write("b.csv", "0.25\n0.75\n")  # without names
    cli.output(*command, *files, *further)
    cli.write("a.csv", "x,0.5\nz,0.5\n")
    assert cli.error(*command, *files, *further, "-o", "plan.csv") == (
        f"{command[0]}: a.csv names mass 1 'z', and c.csv names row 1 'y'; {by_position}"
    )
    assert not (cli.directory / "plan.csv").exists()


def test_a_part_of_the_masses(cli, problem):
    a, b, cost = problem
    want = isentropic.partial_transport(a, b, cost, mass=0.6)
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


def test_masses_that_may_change(cli, problem):
    a, b, cost = problem
    cli.save("b.npy", 2 * b[:, None])
    want = isentropic.unbalanced_sinkhorn(a, 2 * b, cost, epsilon=0.1, penalty=0.5)
    given = (*FILES, "--epsilon", 0.1, "--penalty", 0.5)
    header, row = cli.output("unbalanced_sinkhorn", *given, "-o", "plan.npy").splitlines()
    assert header == "value,gap,iterations,status" and row.endswith(",converged")
    assert [float(cell) for cell in row.split(",")[:3]] == [want.value, want.gap, want.iterations]
    np.testing.assert_array_equal(cli.load("plan.npy"), want.plan)
    assert cli.output("unbalanced_sinkhorn", *given, "--max_iterations", 1).strip().endswith(",1,not converged")
    message = cli.error("unbalanced_sinkhorn", *FILES, "--epsilon", 0.1, "--penalty", 0)
    assert message == "unbalanced_sinkhorn: --penalty must be above 0 and finite, got 0"


def test_barycenter(cli):
    random = np.random.default_rng(3)
    p, cost, weights = random.dirichlet(np.ones(4), 3), random.random((4, 5)), np.array([1.0, 2.0, 3.0])
    for name, array in (("p", p), ("cost", cost), ("w", weights[None])):
        cli.save(f"{name}.npy", array)
    want = isentropic.sinkhorn_barycenter(p, cost, epsilon=0.1, weights=weights)
    given = ("p.npy", "--cost", "cost.npy", "--epsilon", 0.1, "--weights", "w.npy")
    header, row = cli.output("sinkhorn_barycenter", *given, "-o", "q.npy").splitlines()
    assert header == "marginal_error,iterations,status" and row.endswith(",converged")
    assert [float(cell) for cell in row.split(",")[:2]] == [want.marginal_error, want.iterations]
    np.testing.assert_array_equal(cli.load("q.npy"), want.barycenter[None])
    q = cli.output("sinkhorn_barycenter", *given, "-o", "-")
    assert [float(cell) for cell in q.split(",")] == want.barycenter.tolist()
    cli.save("p.npy", np.where(np.arange(3)[:, None] == 1, -p, p))
    message = cli.error("sinkhorn_barycenter", *given)
    assert message.startswith("p.npy: sinkhorn_barycenter: p must be at least 0 and finite, got -")
    assert message.endswith("in row 1")
    cli.save("cost.npy", cost[:3])
    assert cli.error("sinkhorn_barycenter", *given).startswith(
        "cost.npy: sinkhorn_barycenter: cost must have a row for each of 4 columns of p"
    )


def test_distances_along_directions(cli):
    random = np.random.default_rng(4)
    x, y, theta = random.standard_normal((6, 3)), random.standard_normal((5, 3)), random.standard_normal((9, 3))
    a = random.random(6)
    for name, array in (("x", x), ("y", y), ("theta", theta), ("a", a[None])):
        cli.save(f"{name}.npy", array)

    def numbers(*options):
        header, row = cli.output("sliced_wasserstein", "x.npy", "y.npy", *options).splitlines()
        assert header == "distance,error"
        return [float(cell) for cell in row.split(",")]

    assert numbers() == list(isentropic.sliced_wasserstein(x, y))
    options = ("--order", 1, "--projections", 7, "--seed", 2**63, "--a", "a.npy")
    assert numbers(*options) == list(isentropic.sliced_wasserstein(x, y, order=1, projections=7, seed=2**63, a=a))
    assert numbers("--directions", "theta.npy") == pytest.approx(list(isentropic.sliced_wasserstein(x, y, projections=theta)))
    message = cli.error("sliced_wasserstein", "x.npy", "y.npy", "--projections", 0)
    assert message == "sliced_wasserstein: --projections must be above 0, got 0"
    assert "excludes" in cli.error("sliced_wasserstein", "x.npy", "y.npy", "--directions", "theta.npy", "--seed", 1)
    message = cli.error("sliced_wasserstein", "x.npy", "y.npy", "--directions", "x.npy", "--b", "a.npy")
    assert message == "a.npy: sliced_wasserstein: b must have one weight for each of 5 points, got 6"


def test_what_is_refused(cli, problem):
    cli.write("a.csv", "0.5,0.5\n")
    cli.write("b.csv", "0.5\n0.5\n")
    cli.write("c.csv", "inf,inf\n0,1\n")
    files = ("--a", "a.csv", "--b", "b.csv", "--cost", "c.csv")
    message = cli.error("transport", *files, "-o", "plan.csv", status=1)
    assert message == "transport: infeasible: every plan needs an entry of cost inf"
    message = cli.error("transport", *files[:4], "--cost", "cost.npy", "-o", "plan.csv")
    assert (
        message == "transport: cost.npy must be 2 x 2, one row for each mass of --a and one column for each of --b, got 5 x 4"
    )
    message = cli.error("transport", "--a", "c.csv", *files[2:])
    assert message == "transport: c.csv must be one row or one column of masses, got 2 x 2"
    message = cli.error("transport", *files, "--epsilon", "0")
    assert message == "transport: --epsilon must be above 0 and finite, got 0"
    assert "--cost" in cli.error("transport", *files[:4])


def test_options_of_the_iteration_and_of_masses(cli, problem):
    a, b, cost = problem
    want = isentropic.sinkhorn(a, b, cost, epsilon=0.01, tolerance=0, max_iterations=3)
    row = cli.output("transport", *FILES, "--epsilon", 0.01, "--tolerance", 0, "--max_iterations", 3).splitlines()[1]
    assert float(row.split(",")[0]) == want.cost and row.endswith(",3,not converged")
    assert cli.error("transport", *FILES, "--tolerance", 0.1).startswith("--tolerance requires --epsilon")
    cli.save("a.npy", (a * (1 + 3e-5)).astype(np.float32))  # the sums of a float32 file may be as far off
    cli.output("transport", *FILES)
    cli.save("a.npy", a * (1 + 3e-5))
    message = cli.error("transport", *FILES)
    assert message.startswith("optimal_transport: a and b must have equal sums within 1e-06 of them")
    assert message.endswith("; they are in a.npy and b.npy")
    cli.output("transport", *FILES, "--mass_tolerance", 1e-4)


def test_no_plan_without_its_result(cli):
    cli.write("a.csv", "0.5,0.5\n")
    cli.write("c.csv", "0,2\n2,0\n")
    with open("/dev/full", "wb") as full:
        arguments = [cli.program, "transport", "--a", "a.csv", "--b", "a.csv", "--cost", "c.csv", "-o", "plan.npy"]
        assert subprocess.run(arguments, cwd=cli.directory, stdout=full, stderr=subprocess.PIPE).returncode == 1
    assert not (cli.directory / "plan.npy").exists()


def test_form_of_plan_and_result(cli):
    cli.write("a.csv", "0.25,0.75\n"), cli.write("b.csv", "0.5,0.5\n"), cli.write("c.csv", "0.5,1\n1,0.123456\n")
    given = ["transport", "--a", "a.csv", "--b", "b.csv", "--cost", "c.csv", "--precision", 3]
    assert cli.output(*given).splitlines()[1].startswith("0.437,")
    assert cli.output(*given, "-o", "-", "--format-out", "jsonl", "--epsilon", 0.1).startswith("[0.25, ")
    assert cli.output(*given, "-o", "plan.dat", "--format-out", "csv").splitlines()[1].startswith("0.437,")
    assert cli.files()["plan.dat"] == b"0.25,0\n0.25,0.5\n"


@pytest.mark.parametrize("options", [[], ["--epsilon", 1]])
@pytest.mark.parametrize("cost", ["inf,inf\n2,0\n", "inf,2\n2,inf\n"])
def test_without_a_plan(cli, options, cost):
    """With entropy too: the iteration would not end, or its cost would be inf."""
    cli.write("a.csv", "0.5,0.5\n"), cli.write("b.csv", "0.25,0.75\n"), cli.write("c.csv", cost)
    files = ("--a", "a.csv", "--b", "b.csv", "--cost", "c.csv")
    message = cli.error("transport", *files, *options, "-o", "plan.csv", status=1)
    assert message == "transport: infeasible: every plan needs an entry of cost inf"


def test_forbidden_moves_that_leave_a_plan(cli):
    a, cost = np.array([0.5, 0.5]), np.array([[np.inf, 2], [2, np.inf]])
    cli.save("a.npy", a), cli.save("c.npy", cost)
    row = cli.output("transport", "--a", "a.npy", "--b", "a.npy", "--cost", "c.npy", "--epsilon", 1).splitlines()[1]
    assert float(row.split(",")[0]) == isentropic.sinkhorn(a, a, cost, epsilon=1).cost == 2


@pytest.mark.parametrize("options", [[], ["--epsilon", 1]])
def test_places_in_files_of_masses_and_costs(cli, options):
    good, bad = "0.25\n0.75\n", "0.25\n-0.75\n"
    for a, b, cost, said in [
        (bad, good, "0,9\n9,0\n", "a.csv:2:1: "),
        (good, "n,m\n0.25,nan\n", "0,9\n9,0\n", "b.csv:2:2: "),
        (good, good, "l,x,y\nu,0,1\nv,1,nan\n", "c.csv:3:3: "),
        (good, "0,0\n", "0,9\n9,0\n", "b.csv: "),
    ]:
        cli.write("a.csv", a), cli.write("b.csv", b), cli.write("c.csv", cost)
        message = cli.error("transport", "--a", "a.csv", "--b", "b.csv", "--cost", "c.csv", *options)
        assert message.startswith(said), message
    cli.save("c.npy", np.array([[0, 1], [1, np.nan]]))
    message = cli.error("transport", "--a", "a.csv", "--b", "a.csv", "--cost", "c.npy", *options)
    assert message.startswith("c.npy: ") and message.endswith("got nan at row 1, column 1")


def test_places_in_files_of_points_and_weights(cli):
    cli.write("x.csv", "1,0\n0,1\n"), cli.write("y.csv", "1,0\n0,nan\n"), cli.write("w.csv", "1\n-1\n")
    for command, said in [
        (["wasserstein", "x.csv", "y.csv"], "y.csv:2:2: wasserstein: y must be finite"),
        (["sinkhorn_divergence", "x.csv", "x.csv", "--epsilon", 1, "--b", "w.csv"], "w.csv:2:1: sinkhorn_divergence: b must"),
        (["wasserstein_1d", "x.csv", "x.csv", "--v_weights", "w.csv"], "w.csv:2:1: wasserstein_1d: v_weights must"),
        (["wasserstein_histogram", "x.csv", "x.csv", "--support", "y.csv", "--rows", "0:1"], "wasserstein_histogram: y.csv"),
        (["sliced_wasserstein", "x.csv", "x.csv", "--directions", "y.csv"], "y.csv:2: sliced_wasserstein: directions"),
        (["sinkhorn_barycenter", "y.csv", "--cost", "x.csv", "--epsilon", 1], "y.csv:2:2: sinkhorn_barycenter: p must"),
        (["sinkhorn_barycenter", "x.csv", "--cost", "y.csv", "--epsilon", 1], "y.csv:2:2: sinkhorn_barycenter: cost must"),
    ]:
        assert cli.error(*command).startswith(said)
