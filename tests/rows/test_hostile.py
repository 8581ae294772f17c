"""Hostile and degenerate rows: taken as they are, or refused by bylaw's own errors."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, EvidenceError
from bylaw.rows import TableFile
from bylaw.rows._json_lines import check_nesting
from helpers.hostile import SURROGATES

P = np.array([[0.4, 0.6], [0.7, 0.3]])
HALF = "lone surrogate"


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize(
    "columns",
    [
        lambda name: {"classes": ["no", name]},
        lambda name: {"groups": {name: ["a", "b"]}},
        lambda name: {"groups": {"sex": ["a", name]}},
        lambda name: {"groups": {"sex": np.array(["a", name])}},
        lambda name: {"groups": {"sex": {"a": [0.5, 0.5], name: [0.5, 0.5]}}},
        lambda name: {"groups": {("sex", name): {("a", "b"): [1.0, 1.0]}}},
        lambda name: {"references": {name: [0, 1]}},
        lambda name: {"costs": {name: P}},
    ],
)
def test_halves_of_characters_are_refused(columns, name):
    with pytest.raises(EvidenceError, match=HALF):
        Evidence(P, **columns(name))


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (np.empty((0, 2)), {}, "empty"),
        ([], {}, "shape"),
        (np.ones((3, 1)), {}, "two or more classes, got one"),
        (P, {"classes": ["a", "a"]}, "must be all different"),
        (P, {"classes": [1, True]}, "must be all different"),
        (P, {"classes": [1, "1"]}, "also when written as text"),
        (P, {"groups": {"": ["a", "b"]}}, "not empty"),
        (P, {"groups": {3: ["a", "b"]}}, "must be text"),
        (P, {"groups": {("sex", 3): {("a", 1): [1.0, 1.0]}}}, "must be text"),
    ],
)
def test_degenerate_rows_are_refused(rows, columns, message):
    with pytest.raises(EvidenceError, match=message):
        Evidence(rows, **columns)


@pytest.mark.parametrize("weight", [1e300, 1e-300, 1.7e308, 5e-324])
def test_weights_whose_sums_are_no_numbers_are_refused(weight):
    with pytest.raises(EvidenceError, match="divide them by their mean"):
        Evidence(P, weights=[weight, 1.0])


DEEP = {
    "lists": "[" * 5000 + "]" * 5000,
    "objects": '{"b": ' * 5000 + "1" + "}" * 5000,
    "mixed": '[{"b": ' * 101 + "1" + "}]" * 101,
}


@pytest.mark.parametrize("what", DEEP)
@pytest.mark.parametrize("line", [0, 1])
def test_deeply_nested_json_lines_are_refused(what, line, tmp_path):
    lines = ['{"a": 1}'] * 2
    lines[line] = f'{{"a": {DEEP[what]}}}'
    path = tmp_path / "deep.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(EvidenceError, match="nested more than 100 deep"):
        TableFile(path).read(["a"])
    with pytest.raises(EvidenceError, match="nested more than 100 deep"):
        _ = TableFile(path).names


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        '{"a": "[[[[' + "[{" * 200 + '"}\n',
        '{"a": "\\"' + "[" * 200 + '"}\n',
        '{"a": "\\\\", "b": [[]]}\n' * 300,
        '{"a": [1, [2, {"b": []}]]}\n' * 1000,
        "{" * 90 + "\n",
    ],
)
def test_brackets_in_text_and_in_other_rows_do_not_count(text, tmp_path, monkeypatch):
    path = tmp_path / "flat.jsonl"
    path.write_text(text)
    for size in (1, 2, 3, 7, 1 << 20):
        monkeypatch.setattr("bylaw.rows._json_lines._CHUNK", size)
        check_nesting(path)


@pytest.mark.parametrize(
    "text", ['{"a": "\\\\"' + ", [" * 101, '{"a": "open\n' + "[" * 101, "]" * 500 + "[" * 101]
)
def test_brackets_behind_text_that_ends_count(text, tmp_path, monkeypatch):
    path = tmp_path / "deep.jsonl"
    path.write_text(text)
    for size in (1, 5, 1 << 20):
        monkeypatch.setattr("bylaw.rows._json_lines._CHUNK", size)
        with pytest.raises(EvidenceError, match="nested"):
            check_nesting(path)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("part", ["probabilities", "groups", "costs", "weights"])
def test_complex_numbers_are_refused(kind, part):
    """NumPy would drop the imaginary parts."""
    chances = np.array([[0.25, 0.75], [0.5, 0.5]])
    imaginary = (chances + 1j).astype(kind)
    given = {
        "probabilities": {"probabilities": imaginary},
        "groups": {"groups": {"sex": dict(zip("FM", imaginary.T, strict=True))}},
        "costs": {"costs": {"usd": imaginary}},
        "weights": {"weights": imaginary[:, 0]},
    }[part]
    with pytest.raises(EvidenceError, match="must be real numbers, got complex"):
        Evidence(**{"probabilities": chances, **given})
