"""Looks: which held-out rows have judged a policy, and with which verdict.

The error probability of an audit is that of one look. Whoever looks again as rows arrive, or until a verdict
pleases, certifies falsely more often; so each look is noted on the policy's card.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from typing import Any

from bylaw._base.runtime import find_stack_level
from bylaw.errors import GuaranteeWarning, Remedy
from bylaw.policy.policy import Policy
from bylaw.policy.provenance import Look
from bylaw.policy.recognition import Fingerprint, shares_rows
from bylaw.testing._verdicts import Verdict

_COMPARED = 3  # of the last looks are enough to say whether rows were seen before


def name_question(rules: Iterable[Any], *options: Any) -> str:
    """A short hash of what was asked of the rows; it depends on no row."""
    stated = [sorted(map(str, rules)), *options]
    return hashlib.sha256(json.dumps(stated, sort_keys=True, default=str).encode()).hexdigest()[:16]


def record_look(policy: Policy, rows: Fingerprint, verdict: Verdict, question: str, confidence: float) -> int:
    """Note that these rows judged the policy; returns the number of looks so far.

    The same rows with the same question and the same verdict are the same look. A further one warns.
    """
    looks, new = policy.card.looks, Look.now(str(verdict), question, rows)
    if any(_is_same(new, look) for look in looks):
        return len(looks)
    seen = any(shares_rows(rows, (look.fingerprint,)) for look in list(looks)[-_COMPARED:])
    looks.add(new)
    if len(looks) > 1:
        which = "on rows of which some judged it before" if seen else "on further rows"
        planned = f"{1 - (1 - confidence) / len(looks):.6g}"
        warnings.warn(
            GuaranteeWarning(
                f"this is look {len(looks)} at this policy, {which}: {100 * confidence:g} % confidence is "
                "that of a single look, and the chance of a false certificate grows with each",
                Remedy("plan_looks", planned, (str(len(looks)),)),
            ),
            stacklevel=find_stack_level(),
        )
    return len(looks)


def warn_of_copies(rows: Fingerprint) -> None:
    """Where rows repeat each other in a way that no sample of independent rows does."""
    if rows.copied:
        warnings.warn(
            GuaranteeWarning(
                f"of the {rows.rows:,} held-out rows only {rows.n_different:,} are different: each counts as "
                "an independent one, and with copies a certificate is false more often than is stated",
                Remedy("drop_copies"),
            ),
            stacklevel=find_stack_level(),
        )


def _is_same(new: Look, look: Look) -> bool:
    """Return whether two looks asked the same question of the same rows, in any order, and had the same
    verdict."""
    asked = (look.question, look.verdict) == (new.question, new.verdict)
    return asked and bool(new.fingerprint.digests) and look.fingerprint == new.fingerprint
