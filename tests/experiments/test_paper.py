"""The paper's tables: how they are read, split and downloaded; and its baseline."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas
import pytest
from experiments.paper import data, rejection

from helpers.shared_data import shared


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder, and the address under which its files can be had."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def as_published(table, folder):
    """Communities and Crime as its repository has it: no header, question marks, five columns of places."""
    whole = pandas.concat(
        [pandas.DataFrame({f"place{i}": np.arange(len(table)) for i in range(5)}), table], axis=1
    )
    whole.to_csv(folder / "communities.data", header=False, index=False, na_rep="?")
    names = "".join(f"@attribute {name} numeric\n" for name in whole)
    (folder / "communities.names").write_text(f"% a comment\n@relation crimes\n{names}", encoding="latin-1")


@pytest.mark.slow
def test_downloaded_tables_are_those_of_the_folder(served, tmp_path):
    folder, address = served
    there = shared("paper/communities.csv").parent
    (folder / "adult.csv").write_bytes((there / "adult_parsed.csv").read_bytes())
    as_published(pandas.read_csv(there / "communities.csv"), folder)
    got = data.download(tmp_path / "new", f"{address}/adult.csv", f"{address}/communities")
    for load in (data.communities, partial(data.adult, keep="sex")):
        for mine, theirs in zip(load(got), load(there), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_another_file_is_refused(served, tmp_path):
    folder, address = served
    (folder / "adult.csv").write_text("age\n1\n")
    with pytest.raises(SystemExit, match="not the file of the paper"):
        data.download(tmp_path / "new", f"{address}/adult.csv", f"{address}/communities")
    assert not list((tmp_path / "new").iterdir())


def test_without_a_network_the_way_out_is_said(tmp_path):
    with pytest.raises(SystemExit, match="--data-dir"):
        data.download(tmp_path, "http://127.0.0.1:9/adult.csv")
    with pytest.raises(SystemExit, match=r"has no adult_parsed\.csv"):
        data.folder_of(tmp_path)


def test_the_tables_are_the_papers():
    folder = shared("paper/communities.csv").parent
    crimes, incomes = data.communities(folder), data.adult(folder, keep="sex")
    assert crimes.X.shape == (1984, 118)
    assert incomes.X.shape == (2000, 10)
    assert data.adult(folder, keep="income").X.shape == (2000, 11)
    train, unlabelled, test = data.split(crimes, crimes.y, seed=1)
    assert [len(part.y) for part in (train, unlabelled, test)] == [793, 794, 397]


def test_the_baseline_rejects_the_least_confident():
    seen = np.column_stack([np.linspace(0.5, 1, 101), 1 - np.linspace(0.5, 1, 101)])
    new = np.array([[0.5, 0.5], [0.45, 0.55], [0.4, 0.6], [0.9, 0.1]])
    distribution = rejection.referred_below(seen, new, level=0.2)
    # Of the confidences seen, one in a hundred is 0.5, one in ten up to 0.55, a fifth up to 0.6.
    assert distribution.argmax(axis=1).tolist() == [2, 2, 1, 0]
    assert rejection.referred_below(seen, new, level=0.0)[:, 2].sum() == 0


def test_without_beta_nothing_is_rejected_in_the_end():
    rng = np.random.default_rng(0)
    chance = rng.random(800)
    scores = np.column_stack([chance, 1 - chance])
    distribution = rejection.without_beta(scores, scores, 0.1)
    np.testing.assert_allclose(distribution.sum(axis=1), 1)
    assert distribution[:, 2].mean() < 1e-6
