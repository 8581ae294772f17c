"""Answers to the requests of the page, as plain values and independent of HTTP."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from bylaw._base import MIN_CELL, check_min_cell, format_json, interrupting
from bylaw.errors import BylawError, InfeasibleRulesError, OptionError, RuleError
from bylaw.fitting import frontier, solve, solve_without_rules
from bylaw.language import LABEL, Problem, Statement, describe_words
from bylaw.policy import Policy, to_dict, versions
from bylaw.program import Status, decide_as_model
from bylaw.reductions import Diagnosis
from bylaw.report import ReportRows, list_partitions, make_partition, report
from bylaw.rows import Evidence, ObservedRows, as_evidence, observe
from bylaw.solvers import WarmFullBatch
from bylaw.studio import _picture as picture
from bylaw.studio._questions import (
    CancelledError,
    Job,
    Jobs,
    Question,
    View,
    describe_level,
    locate_mistake,
    parse_statement,
    read_place,
    relax,
)
from bylaw.studio._saved_files import SavedFile, Source, suggest_next, write_program, write_rules
from bylaw.view import describe_rate, write_price, write_sentence


@dataclass(eq=False)
class Session:
    """Rows and a first problem, with the answers to the requests of one page.

    Parameters
    ----------
    problem : Problem
        The problem that the page shows first.
    evidence : Evidence
        The rows. If they have labels or true groups, the page also shows observed rates.
    title : str
        The title of the page.
    solving : dict
        Further arguments of `solve`, such as beta and margin.
    source : Source, optional
        The table from which the rows were read.
    """

    problem: Problem
    evidence: Evidence
    title: str = "Rules tried out"
    solving: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None
    min_cell: int = MIN_CELL  # number of rows that a group must have to be shown

    def __post_init__(self) -> None:
        as_evidence(self.evidence)
        check_min_cell(self.min_cell)
        if self.observable:  # fitting a calibration would take longer than solving
            self.solving = {"calibrate": "none", **self.solving}
        self.jobs = Jobs()
        self._busy = threading.Lock()  # one solve at a time: each uses all cores
        self._solvers: dict[View, WarmFullBatch] = {v: WarmFullBatch() for v in ("predicted", "observed")}
        self._kept: dict[str, tuple[Any, Any]] = {}

    @property
    def observable(self) -> bool:
        """Whether labels or groups were given."""
        return self.evidence.has_observed

    def start(self) -> dict[str, Any]:
        """Return what a page shows before the first policy."""
        evidence, seen = self.evidence, self._observe("observed")
        space = self.problem.action_space(evidence.classes, evidence.options)
        return {
            "title": self.title,
            "version": versions()["bylaw"],
            "rows": len(evidence),
            "classes": list(evidence.classes),
            "actions": list(space.actions),
            "kind": space.kind,
            "groups": {name: list(values) for name, values in evidence.group_values.items()},
            "references": list(evidence.references),
            "costs": list(evidence.costs),
            "labelled": LABEL in seen.observed,
            "observed_groups": sorted(seen.observed - {LABEL}),
            "words": [word._asdict() for word in describe_words()],
            "next": suggest_next(self.source),
            "problem": {
                "minimize": str(self.problem.minimize),
                "rules": [{"text": str(rule), "on": True} for rule in self.problem.rules],
            },
        }

    def read_rule(self, text: str, minimize: str | None = None) -> dict[str, Any]:
        """Return a rule in words with its slider, or the error in its text."""
        stated = minimize if minimize is not None and self.read_objective(minimize)["ok"] else None
        try:
            statement = parse_statement(text)
            problem = self._state(stated or str(self.problem.minimize), [statement])
            self._check(problem)
        except BylawError as wrong:
            return locate_mistake(wrong)
        return {
            "ok": True,
            "text": str(statement),
            "sentence": write_sentence(statement, problem.kind),
            **describe_level(statement),
        }

    def read_objective(self, text: str, rules: Sequence[str] = ()) -> dict[str, Any]:
        """Return an objective in words, or the error in its text; rules with errors are left out."""
        statements = []
        for rule in rules:
            with suppress(BylawError):
                statements.append(parse_statement(rule))
        try:
            problem = self._state(text, statements)
            self._check(problem.with_rules(()))
        except BylawError as wrong:
            return locate_mistake(wrong)
        minimize = problem.minimize
        return {"ok": True, "text": str(minimize), "sentence": describe_rate(minimize, problem.kind)}

    def _check(self, problem: Problem) -> None:
        """Raise if the problem refers to an earlier model, cost or group that the rows do not have."""
        evidence = self.evidence
        space = problem.action_space(evidence.classes, evidence.options)
        problem.expand(evidence.classes, evidence.group_values, space.options)
        for names, known, what in (
            (problem.references, evidence.references, "earlier model"),
            (problem.arrays, evidence.costs, "cost"),
            (problem.attributes, evidence.group_values, "group column"),
        ):
            for name in names:
                if name not in known:
                    known = f"one of {list(known)}" if known else f"in the table, which has no {what}"
                    raise RuleError(f"the {what} must be {known}, got {name!r}")

    def answer(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Solve the problem of a request and return the numbers to show; cancel older requests."""
        tab, number = read_place(content)
        with self.jobs.run(tab, "solve", number) as job:
            try:
                job.check()
                question = Question.read(content, self.observable)
                with job.hold(self._busy), interrupting(job.advance), _catch_warnings() as caught:
                    try:
                        policy = self.solve(question, job)
                    except InfeasibleRulesError as conflict:
                        answer = self._explain(conflict.diagnosis, question)
                    else:
                        job.check()
                        warned = [describe(message) for message in caught]
                        answer = {"status": "solved", **self._draw(policy, question), "warnings": warned}
            except CancelledError:
                answer = {"status": "cancelled"}
            except BylawError as refused:
                answer = {"status": "failed", "error": describe(refused)}
        return {"number": number, "seconds": job.seconds, **answer}

    def trace(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cost of each level of one rule."""
        tab, number = read_place(content)
        with self.jobs.run(tab, "frontier", number) as job:
            job.check()
            question, place = Question.read(content, self.observable), content.get("rule")
            if type(place) is not int or place not in question.places:
                raise OptionError(f"rule must be the index of a rule that is on, got {place!r}")
            problem = self.state(question)
            statement = problem.rules[question.places.index(place)]
            slider = describe_level(statement)
            cost = picture.describe_cost(problem.minimize, problem.kind)
            answer = {"number": number, "rule": place, "cost": cost, "now": slider["level"]}
            if slider["level"] is None:
                raise OptionError(f"the rule must have exactly one level to vary, got {statement}")
            levels = np.unique([*np.linspace(slider["lowest"], slider["highest"], 13), slider["level"]])
            # `frontier` takes fewer options than `solve`.
            options = {k: v for k, v in self.solving.items() if k in ("beta", "margin", "calibrate")}
            with job.hold(self._busy), interrupting(job.advance):
                try:
                    with warnings.catch_warnings():  # levels at which observed rates violate rules are marked
                        warnings.simplefilter("ignore")
                        rows = self._choose_rows(question.view)
                        path = frontier(problem, rows, {statement: levels}, callback=job.watch, **options)
                except InfeasibleRulesError:
                    curve: dict[str, Any] = {name: [] for name in ("levels", "costs", "prices", "missed")}
                    return {**answer, **curve, "free": None, "conflicts": levels.tolist()}
                free = self._measure_without(question, place)
        solved = np.array([status is not Status.INFEASIBLE for status in path.status])
        missed = np.array([status is Status.MISSED for status in path.status])
        return {
            **answer,
            "levels": path.levels[solved, 0].tolist(),
            "costs": path.cost[solved].tolist(),
            "prices": path.prices[solved, 0].tolist(),
            "missed": missed[solved].tolist(),
            "free": free,
            "conflicts": path.levels[~solved, 0].tolist(),
        }

    def save(self, content: Mapping[str, Any]) -> SavedFile:
        """Return a file to download: the rules, the policy, a report, or a Python program."""
        question, kind = Question.read(content, self.observable), content.get("kind")
        problem, observed = self.state(question), question.view == "observed" and self.observable
        if kind == "rules":
            off = [text for text, on in question.rules if not on]
            columns = {} if self.source is None else self.source.stated
            text = write_rules(problem, off, columns, self.solving)
            return SavedFile("rules.toml", text, "application/toml")
        if kind == "python":
            text = write_program(problem, self.source, observed, self.solving, self.title)
            return SavedFile("solve.py", text, "text/x-python")
        if kind not in ("policy", "report"):
            raise OptionError(f"kind must be 'rules', 'policy', 'report' or 'python', got {kind!r}")
        tab, number = read_place({"tab": "", "number": 0, **content})
        # A file is made while other questions are solved, which do not wait for it.
        with self.jobs.run(tab, "save", number) as job, interrupting(job.advance):
            rows = self._choose_rows("observed" if observed else "predicted")
            policy = solve(problem, rows, callback=job.watch, **self.solving)  # without warm starts
            if self.source is not None:
                columns = self.source.columns.to_dict()
                card = replace(policy.card, source=self.source.name, columns=columns)
                policy = replace(policy, card=card)
            if kind == "policy":
                return SavedFile("policy.json", format_json(to_dict(policy)), "application/json")
            page = report(policy, rows, title=self.title, min_cell=self.min_cell)
            return SavedFile("report.html", page.html, "text/html")

    def _choose_rows(self, view: View) -> Evidence:
        """Return the rows, with their observed labels and groups only in the view of observed rates."""
        return self.evidence if view == "observed" else self.evidence.without_observed()

    def solve(self, question: Question, job: Job | None = None) -> Policy:
        """Return the policy of a question."""
        problem, rows = self.state(question), self._choose_rows(question.view)
        callback = None if job is None else job.watch
        solver = self._solvers[question.view]
        return solve(problem, rows, solver=solver, callback=callback, **self.solving)

    def state(self, question: Question) -> Problem:
        """Return the problem of a question, without the rules that are switched off."""
        texts = [question.rules[i][0] for i in question.places]
        return self._state(question.minimize, [parse_statement(text) for text in texts])

    def _state(self, minimize: str, rules: Sequence[Statement]) -> Problem:
        own = self.problem
        return Problem(minimize, rules, own.classes, own.decisions, own.reject)

    def _draw(self, policy: Policy, question: Question) -> dict[str, Any]:
        rows, observed = self._make_rows(policy, question.view), question.view == "observed"
        named = tuple(list_partitions(policy.problem, rows.seen))
        table = self._recall(
            "table",
            (named, question.view),
            lambda: picture.GroupTable.make(
                [make_partition(rows.seen, n, self.min_cell) for n in named], rows
            ),
        )
        model = self._recall(
            "model",
            (table, id(rows.model), rows.seen),
            lambda: (table.average(rows.model), picture.measure_mistakes(rows.model, table, rows)),
        )
        rules: list[Any] = [None] * len(question.rules)
        cost, minimize = picture.draw_cost(rows), policy.problem.minimize
        drawn_rules = picture.draw_rules(rows, observed)
        for place, drawn, statement in zip(question.places, drawn_rules, policy.problem.rules, strict=True):
            rules[place] = drawn
            if drawn["undefined"]:  # the price of a rule on 0/0 does not contain its cost
                free = self._measure_without(question, place)
                without = None if free is None else cost["after"] - free
                drawn["price_words"] = write_price(0.0, statement, minimize, without, vacuous=True)
        return {
            "cost": cost,
            "rules": rules,
            "kind": policy.action_space.kind,
            "actions": list(policy.actions),
            **picture.draw_groups(table, model, rows, observed),
            "random": rows.compute_randomness(),
            "intervals": picture.INTERVAL if observed else None,
            "conflict": None,
        }

    def _explain(self, diagnosis: Diagnosis, question: Question) -> dict[str, Any]:
        """Return why the rules conflict, and the smallest change that resolves the conflict."""
        problem = self.state(question)
        rules: list[Any] = [None] * len(question.rules)
        relaxations = []
        for place, statement in zip(question.places, problem.rules, strict=True):
            rules[place] = picture.describe_statement(statement, problem)
            if str(statement) in diagnosis.relaxation:
                relaxations.append(relax(place, statement, diagnosis))
        space = problem.action_space(self.evidence.classes, self.evidence.options)
        return {
            **dict.fromkeys(("cost", "changed", "random", "intervals")),
            **{name: [] for name in ("partitions", "flows", "changed_by_group", "warnings")},
            "status": "conflict",
            "rules": rules,
            "kind": space.kind,
            "actions": list(space.actions),
            "conflict": {
                "words": str(diagnosis),
                "rules": [{"text": name, "reach": diagnosis.least[name]} for name in diagnosis.conflict],
                "relaxations": relaxations,
            },
        }

    def _measure_without(self, question: Question, place: int) -> float | None:
        """Return the cost without one of the rules, or None if the fit fails."""
        others = tuple((text, on and i != place) for i, (text, on) in enumerate(question.rules))
        try:
            with _catch_warnings():
                policy = self.solve(replace(question, rules=others))
        except BylawError:
            return None
        rows = self._make_rows(policy, question.view)
        return policy.expected(policy.problem.minimize, rows.seen, probabilities=rows.probabilities)

    def _make_rows(self, policy: Policy, view: View) -> ReportRows:
        evidence = policy.feature_map.admit(policy.calibrate(self._choose_rows(view)))
        # Observe the rows again if costs or calibrated probabilities were computed for them.
        computed = bool(policy.problem.functions or policy.calibration)
        seen = observe(evidence) if computed else self._observe(view)
        stated = policy.problem.minimize, policy.action_space
        decide = partial(decide_as_model, policy.problem, evidence, policy.frequencies)
        decide_freely = partial(solve_without_rules, policy, self._choose_rows(view))
        return ReportRows(
            policy=policy,
            evidence=evidence,
            seen=seen,
            held_out=False,
            fitted=True,
            model=self._recall("decisions", stated, decide),
            without_rules=self._recall("without rules", (stated, view), decide_freely)
            if policy.problem.rules
            else decide_freely(),
            probabilities=policy.probabilities(evidence),
            min_cell=self.min_cell,
        )

    def _recall(self, what: str, key: Any, make: Callable[[], Any]) -> Any:
        """Return the stored result for this name if its key is the same; otherwise call `make`."""
        if what not in self._kept or self._kept[what][0] != key:
            self._kept[what] = key, make()
        return self._kept[what][1]

    def _observe(self, view: View) -> ObservedRows:
        return self._recall(f"observed rows, {view}", None, lambda: observe(self._choose_rows(view)))


def describe(problem: object) -> str:
    """Return the message of an error or a warning, with its notes."""
    return "\n".join([str(problem), *getattr(problem, "__notes__", ())])


@contextmanager
def _catch_warnings() -> Iterator[list[Warning | str]]:
    """Collect the warnings of this thread only, since another thread may be saving a file."""
    caught, here = [], threading.get_ident()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show = warnings.showwarning

        def note(message: Warning | str, *place: Any, **more: Any) -> None:
            if threading.get_ident() == here:
                caught.append(message)
            else:
                show(message, *place, **more)

        warnings.showwarning = note
        yield caught
