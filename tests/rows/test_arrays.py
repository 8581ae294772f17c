"""Columns of the same rows: their indexes must be equal, wherever two of them meet."""

import numpy as np
import pandas
import polars
import pytest

from bylaw import Evidence, EvidenceError
from bylaw.rows import check_alignment, observe

P = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
INDEX = [4, 7, 9]
OTHERS = {"in another order": [9, 4, 7], "other labels": [0, 1, 2], "shifted": [5, 8, 10]}

COLUMNS = {
    "groups['sex']": lambda column: {"groups": {"sex": column(["F", "M", "F"])}},
    "groups['sex']['F']": lambda column: {
        "groups": {"sex": {"F": column([0.5, 0.5, 0.5]), "M": column([0.5, 0.5, 0.5])}}
    },
    "groups['race']": lambda column: {
        "groups": {"race": column(pandas.DataFrame({"b": P[:, 0], "w": P[:, 1]}))}
    },
    "references['old']": lambda column: {"references": {"old": column([0, 1, 1])}},
    "references['probable']": lambda column: {"references": {"probable": column(pandas.DataFrame(P))}},
    "costs['usd']": lambda column: {"costs": {"usd": column(pandas.DataFrame(P))}},
    "weights": lambda column: {"weights": column([1.0, 2.0, 1.0])},
}


def with_index(index):
    def make(values):
        if isinstance(values, pandas.DataFrame):
            return values.set_axis(index)
        return pandas.Series(values, index=index)

    return make


@pytest.mark.parametrize("index", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_of_evidence_has_the_index_of_the_others(name, index):
    frame = pandas.DataFrame(P, index=INDEX)
    assert len(Evidence(frame, **COLUMNS[name](with_index(INDEX)))) == 3
    with pytest.raises(EvidenceError, match="different indexes") as caught:
        Evidence(frame, **COLUMNS[name](with_index(index)))
    text = str(caught.value)
    assert f"{name} and probabilities have" in text
    assert "reset_index(drop=True)" in text
    assert ".reindex(" in text
    assert ("in another order" if set(index) == set(INDEX) else "other labels") in text


@pytest.mark.parametrize("name", COLUMNS)
def test_arrays_have_no_index_and_so_go_with_any(name):
    assert len(Evidence(P, **COLUMNS[name](with_index([9, 4, 7])))) == 3
    if name != "groups['race']":  # whose columns need names
        assert len(Evidence(pandas.DataFrame(P, index=INDEX), **COLUMNS[name](np.asarray))) == 3


def test_columns_beside_an_array_are_compared_with_each_other():
    sex, weights = pandas.Series(["F", "M", "F"], index=INDEX), pandas.Series([1.0, 1, 1])
    with pytest.raises(EvidenceError, match=r"weights and groups\['sex'\] have different indexes"):
        Evidence(P, groups={"sex": sex}, weights=weights)
    with pytest.raises(EvidenceError, match=r"costs\['b'\] and costs\['a'\] have different"):
        Evidence(P, costs={"a": pandas.DataFrame(P, index=INDEX), "b": pandas.DataFrame(P)})
    evidence = Evidence(P, groups={"sex": sex})
    with pytest.raises(EvidenceError, match=r"labels and groups\['sex'\] have different"):
        observe(evidence.with_observed(labels=pandas.Series([0, 1, 1])))


def test_what_was_observed_is_compared_with_the_evidence_and_among_itself():
    labels, sex = pandas.Series([0, 1, None]), pandas.Series(["F", "M", "F"], index=INDEX)
    with pytest.raises(EvidenceError, match=r"groups\['sex'\] and labels have different"):
        observe(Evidence(P, labels=labels, true_groups={"sex": sex}))
    with pytest.raises(EvidenceError, match="propensity_weights and labels have different"):
        observe(Evidence(P, labels=labels, propensity_weights=pandas.Series([1.0, 1, 1], index=INDEX)))
    with pytest.raises(EvidenceError, match="labels and probabilities have different"):
        observe(Evidence(pandas.DataFrame(P, index=INDEX), labels=labels))


def test_what_costs_turned_out_to_be_is_compared_too():
    with pytest.raises(EvidenceError, match=r"outcomes\['usd'\] and probabilities have different"):
        observe(Evidence(pandas.DataFrame(P, index=INDEX), outcomes={"usd": pandas.DataFrame(P)}))


def test_some_of_the_rows_keep_their_part_of_the_index():
    part = Evidence(pandas.DataFrame(P, index=INDEX)).rows(np.array([2, 0]))
    assert observe(part.with_observed(labels=pandas.Series([0, 1], index=[9, 4]))).observed == {"label"}
    with pytest.raises(EvidenceError, match="different indexes"):
        observe(part.with_observed(labels=pandas.Series([0, 1], index=[4, 7])))


def test_libraries_without_an_index_and_equal_indexes_of_other_types():
    frame = pandas.DataFrame(P)
    assert len(Evidence(frame, groups={"sex": polars.Series(["F", "M", "F"])})) == 3
    assert len(Evidence(frame, groups={"sex": pandas.Series(["F", "M", "F"], index=np.arange(3))})) == 3


def test_the_first_index_is_the_one_that_rows_have():
    assert check_alignment({"a": [1], "b": {}}) is None
    found = check_alignment({"a": [1], "b": {"c": {"d": pandas.Series([1], index=[5])}}})
    assert found is not None
    assert (found.name, list(found.labels)) == ("b['c']['d']", [5])
    assert check_alignment({"other": pandas.Series([1, 2])}, found) is found  # lengths are checked elsewhere
