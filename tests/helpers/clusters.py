"""Real clusters for tests: two processes of Dask, and two executors of Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bylaw
from helpers.absent import skip_for_want_of

# Tests are short: compiling less and collecting garbage in one thread costs less than it saves.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
SOURCE = str(Path(bylaw.__file__).parents[1])


def need(package: str, java: bool = False) -> None:
    """Skip where a package is absent, or Java, which it runs."""
    if importlib.util.find_spec(package) is None:
        skip_for_want_of(package, "pip install '.[test]'")
    elif java and shutil.which("java") is None:
        skip_for_want_of("Java", "apt-get install openjdk-17-jre-headless")


@contextmanager
def dask_cluster() -> Iterator[Any]:
    need("distributed")
    import dask
    from distributed import Client, LocalCluster

    # Without a dashboard, and with few measurements of the processes themselves: they go on until the session
    # ends, and take more time than the tests.
    quiet = {
        "distributed.admin.system-monitor.interval": "60s",
        "distributed.admin.tick.interval": "1s",
        "distributed.worker.memory.monitor-interval": "10s",
        "distributed.worker.profile.enabled": False,
    }
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        dask.config.set(quiet),
        LocalCluster(**options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def spark_session() -> Iterator[Any]:
    """Two executors of one core, each a process of its own, on a master that starts them again."""
    need("pyspark", java=True)
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        "spark.executorEnv.PYTHONPATH": SOURCE,
        "spark.log.level": "ERROR",
        "spark.sql.files.openCostInBytes": "128m",  # a partition for each file, however small
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("bylaw")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def write_parts(parts, folder):
    folder.mkdir()
    for i, part in enumerate(parts):
        part.to_parquet(folder / f"{i:03d}.parquet", index=False)
    return folder


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
