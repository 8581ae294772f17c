"""Names that reorder text are escapes on the page and in audits."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import audit
from bylaw.report import report
from helpers.hostile import HIDDEN, REORDERED, SURROGATES, hostile_policy, hostile_rows


@pytest.mark.slow
@pytest.mark.parametrize("name", [REORDERED, "\x1b[31m\x9b2J\x07", "\u200f\u061c\ufeff"])
def test_what_people_read_holds_nothing_that_reorders_it(name):
    policy, evidence = hostile_policy(400, name), hostile_rows(400, name)
    labels = np.array(evidence.classes, dtype=object)[(np.arange(400) % 3 == 0).astype(int)]
    found = audit(policy, evidence, labels=labels, fitted_rows="estimate")
    page = report(policy, evidence, labels=labels, levels=3, title=name, created=name)
    for shown in (str(found), found._repr_html_(), page.html, page._repr_html_()):
        assert not HIDDEN.search(shown.replace("\r\n", ""))
    assert found.to_dict()["rules"][0]["rule"] == found.rules[0].rule


@pytest.mark.parametrize("name", SURROGATES)
def test_halves_of_characters_in_a_title_are_escapes(name, tmp_path):
    policy, evidence = hostile_policy(), hostile_rows()
    report(policy, evidence, levels=3, title=name, created=name).save(tmp_path / "page.html")
    assert "\\ud" in (tmp_path / "page.html").read_text()
