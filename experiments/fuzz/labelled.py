"""Random problems with labels and true groups: each rule must hold as observed, or its miss be reported.

    python -m experiments.fuzz.labelled --problems 2000 --seed 0
    python -m experiments.fuzz.labelled --only 1234

The scores may be calibrated, too sure, not sure enough, biased, or about something else. Every rule's
observed rate is computed by hand (`by_hand.py`). A rule that is missed must be named in a warning with the
size of the miss; rules that are reported to conflict must do so in the exact linear program too, or the
report must state that it is the predicted rates that conflict. A policy is dominated if a mixture of the
likeliest label and a constant decision satisfies the same rules and costs notably less, and no warning says
so. Two standard errors of the cost may make the difference.
"""

from __future__ import annotations

import argparse
import math
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.fuzz.by_hand import Outcomes, least_miss, linearize
from experiments.fuzz.run import LP_ROUNDING, Maker, Outcome, Rows, random_problem, random_rows, run

from bylaw import (
    EvidenceError,
    InfeasibleRulesError,
    Policy,
    Problem,
    RuleError,
    accepted,
    error,
    miscoverage,
    rejected,
    selected,
    solve,
)
from bylaw.program import compile_problem

TOL = 1e-6
RARE = 1e-3  # share of rows: a quotient over fewer holds as what it is multiplied out to
DEARER = 0.012  # of the range of the cost: what a policy may cost more, or two standard errors
NEAR = 0.1  # a reported miss may be off by this part
MOST_SECONDS = 20.0
GOOD = ("held", "warned", "infeasible", "predicted conflict", "refused", "unjudged")
FAILED = ("missed", "dominated", "no conflict", "slow", "crashed")
RESULTS = Path(__file__).parent / "results" / "labelled.txt"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
DISTORTIONS = ("none", "too sure", "not sure enough", "biased", "unrelated", "random")


@dataclass(frozen=True)
class LabelledProblem:
    problem: Problem
    rows: Rows
    outcomes: Outcomes
    with_labels: bool
    with_groups: bool
    margin: float

    def observed_rules(self) -> list[Any]:
        """The single rules of which everything was seen."""
        evidence = self.rows.evidence
        rules = [found.rule for found in self.problem.expand(evidence.classes, evidence.group_values)]
        return [rule for rule in rules if all(map(self._is_observed, rule.atoms()))]

    def _is_observed(self, atom: Any) -> bool:
        names = [name for name, _ in atom.conditions]
        reads_label = "label" in names or atom.name in ("error", "miscoverage", "precision", "f1")
        return (self.with_labels or not reads_label) and (self.with_groups or "hidden" not in names)


def _some_label(rng: np.random.Generator, K: int) -> int:
    return int(rng.integers(K))


LABELS: list[Maker] = [
    lambda rng, K, unit: [error().given(label=k) <= float(rng.uniform(0.1, 0.9)) for k in range(K)],
    lambda rng, K, unit: error().given(known=0, label=_some_label(rng, K)) <= float(rng.uniform(0, 0.8)),
    lambda rng, K, unit: error().given(hidden=1, label=_some_label(rng, K)) <= float(rng.uniform(0, 0.8)),
    lambda rng, K, unit: (
        selected(k := _some_label(rng, K)).given(hidden=0, label=k) >= float(rng.uniform(0.1, 0.9))
    ),
]
REJECTING: list[Maker] = [
    lambda rng, K, unit: error() <= float(rng.choice([0.01, 0.05, 0.2])) * accepted(),
    lambda rng, K, unit: error().given(known=1) <= float(rng.uniform(0, 0.4)) * accepted().given(known=1),
    lambda rng, K, unit: error().given(hidden=0) <= float(rng.uniform(0, 0.4)) * accepted().given(hidden=0),
    lambda rng, K, unit: error().given(label=0) <= float(rng.uniform(0.05, 0.5)) * accepted().given(label=0),
    lambda rng, K, unit: [error() <= 0.1 * accepted(), rejected() <= float(rng.uniform(0.5, 1))],
]
SETS: list[Maker] = [
    lambda rng, K, unit: [miscoverage().given(label=k) <= 0.1 for k in range(K)],
    lambda rng, K, unit: [
        miscoverage().given(known=g, label=k) <= float(rng.uniform(0, 0.4)) for g in (0, 1) for k in range(K)
    ],
    lambda rng, K, unit: miscoverage().given(hidden=0, label=_some_label(rng, K)) <= float(rng.uniform(0, 1)),
]


def random_labelled(seed: int) -> LabelledProblem:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    labels, hidden = draw_truth(rows, rng)
    evidence = rows.evidence
    n_classes = len(evidence.classes)
    costs, old, soft = evidence.costs["toll"], evidence.references["old"], evidence.references["soft"]
    outcomes = Outcomes(
        labels,
        {"known": np.asarray(evidence.groups["known"].codes), "hidden": hidden},
        {"old": np.eye(n_classes)[np.asarray(old)], "soft": np.asarray(soft)},
        {"toll": np.asarray(costs)},
        np.ones(len(labels)) if evidence.weights is None else np.asarray(evidence.weights),
        n_classes,
        costs.shape[1],
    )
    more = SETS if rows.kind == "sets" else LABELS + (REJECTING if rows.kind == "reject" else [])
    problem = random_problem(rows, rng, more)
    both = rng.random() < 0.8
    with_labels = both or rng.random() < 0.5
    return LabelledProblem(
        problem,
        rows,
        outcomes,
        with_labels,
        with_groups=both or not with_labels,
        margin=float(rng.choice([0.0, 0.0, 0.0, 1.0])),
    )


def draw_truth(rows: Rows, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and hidden groups, (n_rows,) each, of which the scores tell more or less."""
    joint = rows.evidence.joint["hidden"]
    n, S, K = joint.shape
    cells = np.log(joint.reshape(n, S * K) + 1e-12)
    match DISTORTIONS[rng.integers(len(DISTORTIONS))]:
        case "too sure":
            cells = cells * rng.uniform(0.1, 0.7)
        case "not sure enough":
            cells = cells * rng.uniform(1.5, 5)
        case "biased":
            cells = cells + rng.normal(0, 2, S * K)
        case "unrelated":
            cells = rng.permutation(cells)
        case "random":
            cells = np.zeros_like(cells)
    drawn = (cells + rng.gumbel(size=cells.shape)).argmax(axis=1)
    return drawn % K, drawn // K


@contextmanager
def time_limit(seconds: float) -> Any:
    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge(seed: int) -> Outcome:
    """One problem, from its seed to its outcome; the seconds are those of the processor."""
    try:
        given = random_labelled(seed)
        compile_problem(given.problem, given.rows.evidence)
    except (RuleError, EvidenceError) as refusal:
        return Outcome(seed, "refused", 0.0, str(refusal).splitlines()[0])
    begin, spent = time.process_time(), 0.0

    def outcome(kind: str, detail: str = "", violation: float = 0.0) -> Outcome:
        return Outcome(seed, kind, spent, detail, violation)

    try:
        with warnings.catch_warnings(record=True) as caught, time_limit(4 * MOST_SECONDS):
            warnings.simplefilter("always")
            try:
                policy = solve_labelled(given)
            finally:
                spent = time.process_time() - begin  # without what the judging takes
            probabilities = policy.probabilities(given.rows.evidence)
    except InfeasibleRulesError as conflict:
        return outcome(*judge_conflict(given, conflict))
    except (RuleError, EvidenceError) as refusal:
        return outcome("refused", str(refusal).splitlines()[0])
    except TimeoutError:
        return outcome("slow", f"stopped after {4 * MOST_SECONDS:.0f} s")
    except Exception as crash:
        return outcome("crashed", f"{type(crash).__name__}: {crash}")
    if spent > MOST_SECONDS:
        return outcome("slow", f"{len(given.outcomes)} rows")
    return outcome(*judge_policy(given, policy, probabilities, [str(one.message) for one in caught]))


def solve_labelled(given: LabelledProblem) -> Policy:
    outcomes = given.outcomes
    return solve(
        given.problem,
        given.rows.evidence,
        labels=outcomes.labels if given.with_labels else None,
        groups={"hidden": outcomes.groups["hidden"]} if given.with_groups else None,
        margin=given.margin,
    )


def judge_policy(
    given: LabelledProblem, policy: Policy, probabilities: np.ndarray, messages: Sequence[str]
) -> tuple[str, str, float]:
    """What is missed as observed, by hand, must be reported with its size."""
    missed, worst, silent = 0, 0.0, []
    rules = given.observed_rules()
    for rule in rules:
        if (found := linearize(rule, given.outcomes)) is None:
            continue
        excess, unit, whole = found.measure(probabilities), found.unit, found.divide_by(probabilities)
        if whole <= RARE and excess * whole <= TOL * max(unit, 1.0):  # next to nothing, over next to nothing
            continue
        worst = max(worst, excess / max(unit, 1.0))
        if excess <= TOL * max(unit, 1.0):
            continue
        missed += 1
        if not is_reported(str(rule), excess, policy, messages):
            silent.append((excess / max(unit, 1.0), str(rule)))
    if silent:
        size, name = max(silent)
        kind, detail = "missed", f"{len(silent)} of {len(rules)} rules, {name!r} by {size:.3g} of its unit"
        return kind, detail + ("; there was another warning" if messages else ""), worst
    simple = find_simple_cost(given, rules)
    if simple is not None and given.margin == 0:
        cost = measure_cost(given, probabilities)
        leeway = max(DEARER, 2 / math.sqrt(len(given.outcomes))) * measure_range(given)
        if cost > simple + leeway and not any(
            "a simple policy satisfies every rule" in one for one in messages
        ):
            return "dominated", f"costs {cost:.4f}, a simple policy {simple:.4f}", worst
    if not missed:
        return "held", "", worst
    return "warned", "could hold" if is_feasible(given) else "", worst


def measure_cost(given: LabelledProblem, probabilities: np.ndarray) -> float:
    found = linearize(given.problem.minimize <= 0.0, given.outcomes)
    return found.measure(probabilities)


def measure_range(given: LabelledProblem) -> float:
    """The mean difference between the dearest and the cheapest decision of a row."""
    paid = linearize(given.problem.minimize <= 0.0, given.outcomes).paid
    return float((paid.max(axis=1) - paid.min(axis=1)).sum())


def find_simple_cost(given: LabelledProblem, rules: Sequence[Any]) -> float | None:
    """The least cost of mixtures of the likeliest label and a constant decision that satisfy all rules; None
    if there is none, or if rules or the objective cannot be judged by hand."""
    evidence, outcomes = given.rows.evidence, given.outcomes
    everything = len(given.problem.expand(evidence.classes, evidence.group_values))
    objective = getattr(given.problem.minimize, "terms", None)
    if given.rows.kind == "sets" or not given.with_labels or len(rules) < everything or objective is None:
        return None
    excesses = [linearize(rule, outcomes) for rule in rules]
    if linearize(given.problem.minimize <= 0.0, outcomes) is None or not all(excesses):
        return None
    model = np.eye(outcomes.n_actions)[np.asarray(evidence.probabilities).argmax(axis=1)]
    costs = []
    for action in range(outcomes.n_actions):
        constant = np.tile(np.eye(outcomes.n_actions)[action], (len(outcomes), 1))
        for share in np.linspace(0, 1, 21):
            mixed = (1 - share) * model + share * constant
            if all(found.measure(mixed) <= 0 for found in excesses):
                costs.append(measure_cost(given, mixed))
    return min(costs, default=None)


def is_reported(name: str, excess: float, policy: Policy, messages: Sequence[str]) -> bool:
    """A warning states the miss after the rule's name; where it lists only some, the policy lists all."""
    if not messages:
        return False
    listed = getattr(policy, "observed", {}).get(name)
    if listed is not None and abs(listed - excess) <= NEAR * excess:
        return True
    for message in messages:
        for found in re.finditer(re.escape(name) + r"(?![\d.e])", message):
            after = message[found.end() : found.end() + 60]
            if any(abs(float(number) - excess) <= NEAR * excess for number in NUMBER.findall(after)):
                return True
    return False


def is_feasible(given: LabelledProblem) -> bool | None:
    """Whether some function of what a policy sees satisfies the observed rules; None if it cannot be told."""
    form = compile_problem(given.problem, given.rows.evidence)
    n = len(given.outcomes)
    features = np.empty((form.base.shape[0], n))
    form.feature_map.columns(given.rows.evidence, slice(0, n), features)
    rules = given.observed_rules()
    if not any(linearize(rule, given.outcomes) for rule in rules):
        return None
    least = least_miss(rules, given.outcomes, features.T, given.rows.kind == "sets")
    return None if math.isnan(least) else least <= LP_ROUNDING


def judge_conflict(given: LabelledProblem, conflict: InfeasibleRulesError) -> tuple[str, str]:
    evidence = given.rows.evidence
    everything = len(given.problem.expand(evidence.classes, evidence.group_values))
    feasible = is_feasible(given)
    if feasible is False:
        return "infeasible", ""
    if "predict" in conflict.diagnosis.remark:
        return "predicted conflict", "the observed rates do not conflict"
    if feasible is None or len(given.observed_rules()) < everything:
        return "unjudged", "not every rule was observed"
    return "no conflict", f"the linear program satisfies all of {everything} rules as observed"


def report(outcomes: Sequence[Outcome], shown: int = 40) -> str:
    counts = Counter(outcome.kind for outcome in outcomes)
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    held = [outcome.violation for outcome in outcomes if outcome.kind == "held"]
    could = sum(outcome.kind == "warned" and outcome.detail == "could hold" for outcome in outcomes)
    lines = [f"{len(outcomes)} labelled problems"]
    lines += [f"  {kind:20}{counts[kind]:7}" for kind in (*GOOD, *FAILED)]
    lines.append(f"  of those warned, {could} could hold in the exact linear program")
    lines.append(f"  worst miss where all rules hold  {max(held, default=0):.2e} of a rule's unit")
    lines.append(
        f"  seconds: {sum(o.seconds for o in outcomes):.1f} in all, slowest {slowest.seconds:.2f} "
        f"(seed {slowest.seed}, {slowest.kind})"
    )
    failures = [outcome for outcome in outcomes if outcome.kind in FAILED]
    lines += [f"{o.kind}: --only {o.seed}: {o.detail}" for o in failures[:shown]]
    if len(failures) > shown:
        lines.append(f"and {len(failures) - shown} more failures")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem; the others follow")
    parser.add_argument("--only", type=int, help="one problem, by its seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="a file for the counts")
    options = parser.parse_args()
    if options.only is not None:
        outcomes = [judge(options.only)]
    else:
        outcomes = run(options.seed * 1_000_000, options.problems, options.processes, judge)
    print(text := report(outcomes))
    if options.out is not None:
        options.out.write_text(text + "\n")
    return int(any(outcome.kind in FAILED for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
