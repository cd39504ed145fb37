"""isentropic.BatchMap in real engines: the bytes of one machine, however a table is split and whichever worker is killed.

Each engine is tested where it is installed: `pip install polars duckdb datasets "ray[data]" pyspark distributed`.
"""

import sys

import numpy as np
import pytest

import isentropic

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet  # noqa: E402

ROWS, N = 700, 20


def mapped(killed=None):
    """What a batch goes through; where `killed` is a path, the process that has row 350 is killed before it is through, once.

    A function within a function: engines send it whole to workers that have no module of this name.
    """
    normalize = isentropic.BatchMap("entropy_normalize", "scores", out="p", entropy=2.0)
    draw = isentropic.BatchMap("sample", "scores", out="token", row="row", seed=1)

    def both(batch):
        import os
        import signal

        found = normalize(batch)
        rows = batch["row"]
        if killed is not None and 350 in (rows.to_pylist() if hasattr(rows, "to_pylist") else list(rows)):
            try:
                os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return draw(found)

    return both


both = mapped()


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """A file of rows, and the results of one machine: bytes of the distributions and of the draws."""
    scores = np.random.default_rng(2).normal(size=(ROWS, N))
    file = tmp_path_factory.mktemp("engines") / "examples.parquet"
    table = pa.table({"row": np.arange(ROWS), "scores": pa.FixedSizeListArray.from_arrays(scores.ravel(), N)})
    table = table.set_column(1, "scores", table["scores"].cast(pa.list_(pa.float64())))
    pyarrow.parquet.write_table(table, file, row_group_size=97)
    return file, bytes_of(np.arange(ROWS), isentropic.entropy_normalize(scores, entropy=2.0), isentropic.sample(scores, seed=1))


def bytes_of(rows, p, tokens):
    order = np.argsort(np.asarray(rows))
    p = np.asarray([np.asarray(row, np.float64) for row in p])
    return p[order].tobytes(), np.asarray(tokens, np.int64)[order].tobytes()


def of_table(table):
    return bytes_of(table["row"].to_numpy(), table["p"].to_pylist(), table["token"].to_numpy())


def test_pyarrow(examples):
    file, expected = examples
    batches = pyarrow.parquet.ParquetFile(file).iter_batches(31)
    assert of_table(pa.Table.from_batches([both(batch) for batch in batches])) == expected


def test_polars(examples):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    file, expected = examples
    assert of_table(both(polars.read_parquet(file)).to_arrow()) == expected
    schema = {
        "row": polars.Int64,
        "scores": polars.List(polars.Float64),
        "p": polars.List(polars.Float64),
        "token": polars.Int64,
    }
    lazy = polars.scan_parquet(file).map_batches(both, schema=schema)
    assert of_table(lazy.collect().to_arrow()) == expected


def test_names_of_polars_are_written(tmp_path):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    isentropic.write(tmp_path / "x.csv", polars.DataFrame({"a": [1.5, 2.5], "b": [0.0, -1.0]}))
    assert (tmp_path / "x.csv").read_text() == "a,b\n1.5,0\n2.5,-1\n"


def test_duckdb(examples):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    file, expected = examples
    found = duckdb.sql(f"SELECT * FROM '{file}' ORDER BY hash(row)").arrow()
    batches = found if hasattr(found, "read_next_batch") else found.to_batches(max_chunksize=64)
    assert of_table(pa.Table.from_batches([both(batch) for batch in batches])) == expected


@pytest.mark.parametrize("processes", [None, 2])
def test_datasets(examples, processes, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    file, expected = examples
    loaded = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path))
    found = loaded.map(lambda batch: dict(both(dict(batch))), batched=True, batch_size=41, num_proc=processes)
    assert bytes_of(found["row"], found["p"], found["token"]) == expected


def test_dask(examples):
    array = pytest.importorskip("dask.array", reason="dask is not installed")
    file, expected = examples
    scores = np.asarray(pyarrow.parquet.read_table(file)["scores"].to_pylist())
    for chunks in ((100, N), (90, 7)):
        x = array.from_array(scores, chunks=chunks)
        found = isentropic.entropy_normalize(x, entropy=2.0), isentropic.sample(x, seed=1)
        assert bytes_of(np.arange(ROWS), *(one.compute() for one in found)) == expected


@pytest.mark.parametrize("kills", [False, True])
def test_ray(examples, kills, tmp_path):
    ray, data = (pytest.importorskip(name, reason="ray is not installed") for name in ("ray", "ray.data"))
    file, expected = examples
    function = mapped(str(tmp_path / "killed") if kills else None)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        found = data.read_parquet(str(file)).map_batches(function, batch_format="pyarrow", batch_size=53)
        assert of_table(pa.concat_tables(ray.get(found.to_arrow_refs()), promote_options="default")) == expected
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists() == kills


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("way", ["mapInArrow", "mapInPandas"])
def test_spark(examples, way, kills, tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # otherwise workers are the python3 of PATH
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    file, expected = examples
    function = mapped(str(tmp_path / "killed") if kills else None)
    # Two workers, and four tries of what fails.
    session = sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = session.read.parquet(str(file)).repartition(5)
        schema = "row long, scores array<double>, p array<double>, token long"
        found = getattr(frame, way)(lambda batches: map(function, batches), schema).toPandas()
        assert bytes_of(found["row"], found["p"], found["token"]) == expected
    finally:
        session.stop()
    assert (tmp_path / "killed").exists() == kills


def test_dask_distributed(examples, tmp_path):
    """A worker that is killed in the middle: its rows are done again by another."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    file, expected = examples
    table, function = pyarrow.parquet.read_table(file), mapped(str(tmp_path / "killed"))
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        tasks = [client.submit(function, table.slice(start, 90)) for start in range(0, ROWS, 90)]
        assert of_table(pa.concat_tables(client.gather(tasks))) == expected
    assert (tmp_path / "killed").exists()
