from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas
import polars
import pytest

from bylaw.engines import _polars_frames as polars_frames, _scan as scanning, _tasks
from helpers.clusters import dask_cluster, spark_session, write_parts


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


@pytest.fixture
def small(monkeypatch):
    """Few rows are sampled, and Polars has small partitions, so that all rows matter."""
    monkeypatch.setattr(scanning, "SAMPLE_ROWS", 2400)
    monkeypatch.setattr(_tasks, "_LEAST_SHARE", 200)
    monkeypatch.setattr(polars_frames, "_BATCH_ROWS", 300)
    monkeypatch.setattr(polars_frames, "_PARTITION_BATCHES", 3)


ENGINES = [
    "files",
    "polars",
    "dask threads",
    pytest.param("dask cluster", marks=pytest.mark.slow),
    pytest.param("spark", marks=pytest.mark.slow),
]


@pytest.fixture(params=ENGINES)
def kind(request, tmp_path, small):
    name = request.param
    if name == "files":
        return Kind(
            name, lambda parts: str(write_parts(parts, tmp_path / f"{len(parts)}")), lambda found: found
        )
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
        return spark.read.parquet(str(write_parts(parts, tmp_path / f"{len(parts)}")))

    return Kind("spark", load, lambda found: found.toArrow().to_pandas())
