"""Looks: which held-out rows have judged a policy, and with which verdict.

The error probability of an audit is that of one look. Whoever looks again as rows arrive, or until a verdict
pleases, certifies falsely more often; so each look is noted on the policy's card.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from bylaw.auditing.verdicts import Verdict
from bylaw.errors import GuaranteeWarning, Remedy
from bylaw.policy.policy import Policy
from bylaw.policy.provenance import Look
from bylaw.policy.recognition import RowsAtHand, shares_rows


def name_question(rules: Iterable[Any], *options: Any) -> str:
    """A short hash of what was asked of the rows; it depends on no row."""
    stated = [sorted(map(str, rules)), *options]
    return hashlib.sha256(json.dumps(stated, sort_keys=True, default=str).encode()).hexdigest()[:16]


def record_look(policy: Policy, rows: RowsAtHand, verdict: Verdict, question: str, confidence: float) -> int:
    """Note that these rows judged the policy; returns the number of looks so far.

    The same rows with the same question and the same verdict are the same look. A further one warns.
    """
    looks, prints = policy.card.looks, rows.make_fingerprint()
    for look in looks:
        asked = (look.question, look.verdict, look.rows) == (question, str(verdict), rows.rows)
        if asked and (look.fingerprint == prints or shares_rows(rows, (look.fingerprint,))):
            return len(looks)
    seen = any(shares_rows(rows, (look.fingerprint,)) for look in looks)
    looks.add(Look(datetime.now(UTC).isoformat(timespec="seconds"), str(verdict), question, prints))
    if len(looks) > 1:
        which = "on rows of which some judged it before" if seen else "on further rows"
        planned = f"{1 - (1 - confidence) / len(looks):.6g}"
        warnings.warn(
            GuaranteeWarning(
                f"this is look {len(looks)} at this policy, {which}: {100 * confidence:g} % confidence is "
                "that of a single look, and the chance of a false certificate grows with each",
                Remedy("plan_looks", planned, (str(len(looks)),)),
            ),
            stacklevel=3,
        )
    return len(looks)
