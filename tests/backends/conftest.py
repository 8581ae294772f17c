from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas
import polars
import pytest

from bylaw.backends import polars_frames
from bylaw.backends import scan as scanning
from helpers.clusters import dask_cluster, spark_session


@pytest.fixture(scope="session")
def cluster():
    with dask_cluster() as client:
        yield client


@pytest.fixture(scope="session")
def spark():
    with spark_session() as session:
        yield session


@dataclass(frozen=True)
class Kind:
    """An engine: how rows in partitions become a source, and a frame of answers one of pandas."""

    name: str
    load: Callable[[list[pandas.DataFrame]], Any]
    fetch: Callable[[Any], pandas.DataFrame]


def write_parts(parts, folder):
    folder.mkdir()
    for i, part in enumerate(parts):
        part.to_parquet(folder / f"{i:03d}.parquet", index=False)
    return folder


@pytest.fixture
def small(monkeypatch):
    """Few rows are sampled, and Polars has small partitions, so that all rows matter."""
    monkeypatch.setattr(scanning, "SAMPLE_ROWS", 800)
    monkeypatch.setattr(scanning, "_LEAST_PART", 200)
    monkeypatch.setattr(polars_frames, "_BATCH_ROWS", 300)
    monkeypatch.setattr(polars_frames, "_PARTITION_BATCHES", 3)


ENGINES = [
    "files",
    "polars",
    "dask threads",
    pytest.param("dask cluster", marks=pytest.mark.xdist_group("dask")),
    pytest.param("spark", marks=pytest.mark.xdist_group("spark")),
]


@pytest.fixture(params=ENGINES)
def kind(request, tmp_path, small):
    name = request.param
    if name == "files":
        return Kind(name, lambda parts: str(write_parts(parts, tmp_path / f"{len(parts)}")), lambda found: found)
    if name == "polars":
        return Kind(
            name,
            lambda parts: polars.concat([polars.from_pandas(part) for part in parts]).lazy(),
            lambda found: found.collect(engine="streaming").to_pandas(),
        )
    if name == "spark":
        return make_spark_kind(request.getfixturevalue("spark"), tmp_path)
    return make_dask_kind(name, request)


def make_dask_kind(name, request):
    import dask.dataframe
    from dask.delayed import delayed

    if name == "dask cluster":
        request.getfixturevalue("as_default")
    return Kind(
        name,
        lambda parts: dask.dataframe.from_delayed([delayed(part) for part in parts], meta=parts[0][:0]),
        lambda found: found.compute(),
    )


@pytest.fixture
def as_default(cluster):
    """While a test runs, Dask computes on the cluster."""
    with cluster.as_current():
        yield cluster


def make_spark_kind(spark, tmp_path):
    def load(parts):
        folder = write_parts(parts, tmp_path / f"{len(parts)}")
        return read_each(spark, folder, len(parts)).cache()

    return Kind("spark", load, lambda found: found.toPandas())


def read_each(spark, folder, count, before=lambda i: None):
    """A Spark DataFrame whose partition i is file i, which Spark itself would put together."""

    def read(batches):
        import pyarrow.parquet

        for batch in batches:
            for i in batch.column(0).to_pylist():
                before(i)
                yield from pyarrow.parquet.read_table(f"{folder}/{i:03d}.parquet").to_batches()

    schema = spark.read.parquet(f"{folder}/000.parquet").schema
    return spark.range(0, count, 1, count).mapInArrow(read, schema)
