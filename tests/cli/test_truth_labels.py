"""Labels that are true or false, in text and in typed files, for classes that are so, too, or their text."""

import numpy as np
import pandas as pd
import pytest

from bylaw import Policy


def write_rows(path, labels, names=("p_True", "p_False")):
    rng = np.random.default_rng(4)
    chance = rng.uniform(size=120)
    truth = rng.random(120) < chance
    frame = pd.DataFrame({names[0]: chance, names[1]: 1 - chance, "label": np.where(truth, *labels)})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return ((chance > 0.5) != truth).mean()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("labels", [(True, False), ("True", "False"), ("true", "false"), ("TRUE", "FALSE")])
@pytest.mark.parametrize("classes", ["names", "text", "numbers"])
def test_labels_match_classes(bylaw, tmp_path, ending, labels, classes):
    if classes == "numbers" and ending == ".parquet" and isinstance(labels[0], str):
        pytest.skip("text in a typed file does not stand for numbers")
    table, policy = tmp_path / f"rows{ending}", tmp_path / "policy.json"
    hand = write_rows(table, labels, ("p_1", "p_0") if classes == "numbers" else ("p_True", "p_False"))
    rules = tmp_path / "rules.toml"
    columns = '[columns]\nprobabilities = ["p_True", "p_False"]\nclasses = ["True", "False"]\n'
    rules.write_text('rules = ["rejected() <= 0"]\n' + (columns if classes == "text" else ""))
    done = bylaw("fit", table, "--rules", rules, "--label", "label", "-o", policy)
    assert done.code == 0, done.err
    expected = {"names": (True, False), "text": ("True", "False"), "numbers": (1, 0)}[classes]
    assert Policy.load(policy).actions[:2] == expected
    assert f"observed, is {hand:.4g}" in done.out


def test_text_in_a_rule_is_told_from_a_truth_value(bylaw, tmp_path):
    table = tmp_path / "rows.csv"
    write_rows(table, (True, False))
    done = bylaw("fit", table, "--rule", "selected('True') <= 0.3", "-o", tmp_path / "policy.json")
    assert done.code == 2
    assert "write True, not 'True'" in done.err
