"""Reading and writing policies as JSON; the reader validates everything."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw._base import MIN_CELL, BadValueError, Floats, Node, read_json
from bylaw.calibration import Calibration
from bylaw.language import (
    ACTION_SPACES,
    LABEL,
    ActionSpace,
    CostColumn,
    Problem,
    ReferenceColumn,
    Source,
    Worst,
    make_action_space,
    renew_text,
)
from bylaw.policy._provenance import Card, Fingerprint, Fingerprints
from bylaw.program import (
    Attribute,
    Certificate,
    Feature,
    FeatureMap,
    FittedRate,
    FittedRates,
    GroupRate,
    Guarantee,
    HardDecisions,
    RulePrice,
    Solution,
    Status,
)

if TYPE_CHECKING:
    from bylaw.policy._policy import Policy

FORMAT = "bylaw-policy"
VERSION = 3
_SOURCE_KINDS: dict[type[Source], str] = {ReferenceColumn: "reference", CostColumn: "cost"}


def feature_map_to_dict(feature_map: FeatureMap) -> dict[str, Any]:
    space = feature_map.action_space
    decisions: dict[str, Any] = {"kind": space.kind, "classes": list(space.classes), "reject": space.reject}
    if space.named_options:  # files of other kinds stay as they always were
        decisions["options"] = list(space.named_options)
    return {
        "decisions": decisions,
        "features": [
            {
                "source": f.source
                and {"kind": _SOURCE_KINDS[type(f.source)], "name": f.source.name, "item": f.source.item},
                "event": dict(f.event),
            }
            for f in feature_map.features
        ],
        "attributes": {
            name: {"values": list(a.values), "known": a.known} for name, a in feature_map.attributes.items()
        },
    }


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    return {"minimize": str(problem.minimize), "rules": [str(rule) for rule in problem.rules]}


def frequencies_to_list(frequencies: Mapping[Any, float]) -> list[dict[str, Any]]:
    return [{"event": dict(event), "frequency": f} for event, f in frequencies.items()]


def decision_rule_to_dict(
    feature_map: FeatureMap, score_matrix: Floats, beta: float, calibration: Calibration | None = None
) -> dict[str, Any]:
    """Return the part of the JSON file that decisions depend on."""
    rule = {**feature_map_to_dict(feature_map), "weights": score_matrix.tolist(), "beta": beta}
    return rule if calibration is None else {**rule, "calibration": calibration.to_dict()}


def compute_digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class _Rounding:
    """Precision of sums over the fitted rows in a file.

    With exact sums, two files whose rows differ by one would reveal that row, and an exact frequency would
    reveal the score of a row that is alone in its group.
    """

    digits: int  # significant digits of prices, costs and terms of guarantees
    decimals: int  # decimals of frequencies: one unit is at least ten rows, if there are a hundred or more

    @classmethod
    def of_rows(cls, fingerprints: Fingerprints) -> _Rounding:
        """Return the rounding for the number of rows in a file, so that saving again changes nothing."""
        rows = fingerprints[0].rows if fingerprints else 0
        magnitude = math.floor(math.log10(max(rows, 1))) - 1
        return cls(digits=min(max(magnitude, 2), 3), decimals=min(max(magnitude, 1), 3))

    def round_digits(self, value: float) -> float:
        """Round a number to `digits` significant digits."""
        return float(f"{value:.{self.digits}g}")

    def round_share(self, share: float) -> float:
        """Round a fraction of the rows to `decimals`; the result is never zero."""
        return max(round(share, self.decimals), 10.0**-self.decimals)

    def round_price(self, price: float, few_rows: bool) -> float:
        """Round a price to the significant digits or, if its rule refers to few rows, to a power of ten.

        The weight of such a rule divided by an exact price would reveal the frequency of its group.
        """
        return round_magnitude(price) if few_rows else self.round_digits(price)

    def round_to_error(self, excess: float, error: float) -> float:
        """Round an excess to the precision of its standard error.

        A value above zero stays above zero.
        """
        step = round_magnitude(self.round_digits(error), math.floor)
        if abs(excess) < step:
            return round_magnitude(excess, math.ceil) if excess > 0 else 0.0
        return self.round_digits(round(excess / step) * step if step else excess)


def round_magnitude(value: float, towards: Callable[[float], int] = round) -> float:
    """Round a number to a power of ten; zero stays zero."""
    return float(f"1e{towards(math.log10(value))}") if value > 0 else 0.0


def _list_rules_on_few_rows(policy: Policy) -> set[str]:
    """Return the single rules with a condition that fewer than `MIN_CELL` fitted rows meet.

    If there are fewer than a hundred fitted rows, these are all rules with a condition.
    """
    rows = policy.fingerprints[0].rows if policy.fingerprints else math.inf
    few = {
        condition
        for condition, share in policy.frequencies.items()
        if condition and (share * rows < MIN_CELL or rows < 10 * MIN_CELL)
    }
    return {
        str(one.rule)
        for one in (policy.expanded_rules if few else ())
        if few & {atom.conditions for atom in one.rule.atoms()}
    }


def to_dict(policy: Policy) -> dict[str, Any]:
    """Return a policy as a dict for a JSON file.

    Numbers that determine decisions are exact to the last bit. Other numbers that were measured on the fitted
    rows are rounded, so that a file does not reveal single rows.
    """
    rounding = _Rounding.of_rows(policy.fingerprints)
    round_digits, solution, few = rounding.round_digits, policy.solution, _list_rules_on_few_rows(policy)
    rates = policy.fitted_rates
    errors = {} if rates is None else {one.rule: one.standard_error for one in rates.rules}
    prices = [
        price._replace(
            multiplier=rounding.round_price(price.multiplier, price.rule in few),
            tightened=rounding.round_to_error(price.tightened, errors.get(price.rule, 0.0)),
        )
        for price in policy.rule_prices
    ]
    content = {
        "format": FORMAT,
        "version": VERSION,
        "hash": policy.digest,
        "card": policy.card.to_dict(),
        **problem_to_dict(policy.problem),
        **decision_rule_to_dict(policy.feature_map, policy.score_matrix, policy.beta, policy.calibration),
        "guarantee": {
            # Beta and the entropy are not sums over rows.
            name: value
            if name in ("beta", "entropy")
            else rounding.round_price(value, bool(few) and name in ("multiplier_norm", "most_slack"))
            for name, value in guarantee_to_dict(policy.guarantee).items()
        },
        "multipliers": [price._asdict() for price in prices],
        "frequencies": frequencies_to_list(
            {event: rounding.round_share(share) for event, share in policy.frequencies.items()}
        ),
        "fingerprints": [part.to_dict() for part in policy.fingerprints],
        "certificate": policy.certificate
        and {**asdict(policy.certificate), "p_value": round_digits(policy.certificate.p_value)},
        "solution": {
            "status": solution.status.name,
            "gradient_mapping": round_digits(solution.gradient_mapping),
            "value": round_digits(solution.value),
            "steps": solution.steps,
            **({"passes": solution.passes} if solution.passes else {}),
        },
    }
    if policy.hard is not None:
        cost, price = round_digits(policy.hard.cost), round_digits(policy.hard.price)
        content["hard"] = {
            "cost": cost,
            "randomised_cost": cost - price,  # so that the difference, which is small, stays
            "randomised_excess": round_digits(policy.hard.randomised_excess),
        }
    if policy.vacuous:
        content["vacuous"] = list(policy.vacuous)
    if policy.group_rates:
        rows = policy.fingerprints[0].rows if policy.fingerprints else math.inf
        content["group_rates"] = [
            one._replace(
                weight=round_digits(one.weight),
                rate=math.nan  # the rate of a group with few rows is not saved
                if math.isnan(one.rate) or policy.frequencies.get(one.group, 1.0) * rows < MIN_CELL
                else round_digits(one.rate),
            ).to_dict()
            for one in policy.group_rates
        ]
    if rates is not None:
        content["fitted_rates"] = {
            "chance": round_digits(rates.chance),
            "rows_needed": None if math.isinf(rates.rows_needed) else round_digits(rates.rows_needed),
            "softness": round_digits(rates.softness),
            "observed": rates.observed,
            "rules": [
                {
                    "rule": one.rule,
                    "excess": rounding.round_to_error(one.excess, one.standard_error),
                    "standard_error": round_digits(one.standard_error),
                    "rows": round(one.rows, -1),
                    "trust": round_digits(one.trust),
                    "margin": round_digits(one.margin),
                }
                for one in rates.rules
            ],
        }
    return {**content, "checksum": compute_digest(content)}


def read(path: Path) -> dict[str, Any]:
    """Read a policy from a JSON file; return its validated fields."""
    return read_json(path, "a policy", _fields)


def _fields(root: Node) -> dict[str, Any]:
    root.check_version(FORMAT, VERSION, oldest=1)
    feature_map = read_feature_map(root)
    space = feature_map.action_space
    prices = [
        RulePrice(**node.fields(RulePrice, signed=["tightened"], statement=_read_rule, rule=_read_rule))
        for node in root["multipliers"].list()
    ]
    score_matrix = root["weights"].matrix(len(feature_map.features), len(space.actions))
    with np.errstate(over="ignore"):
        if not np.isfinite(root["beta"].positive() * score_matrix).all():
            raise BadValueError("policy.beta times policy.weights must be finite")
    calibration = None
    if "calibration" in root.value:
        calibration = Calibration.from_node(root["calibration"], space.classes, feature_map.attributes)
    fingerprints = tuple(Fingerprint.from_node(node) for node in root["fingerprints"].list())
    problem = read_problem(root, space)
    frequencies = read_frequencies(root["frequencies"], feature_map)
    rounding = _Rounding.of_rows(fingerprints)
    solution = root["solution"].fields(
        Solution,
        signed=["value"],
        without=["multipliers", "trace", "exact"],
        status=lambda node: Status[node.one_of(Status.__members__)],
    )
    certificate = None
    if root["certificate"].value is not None:
        certificate = Certificate(**root["certificate"].fields(Certificate))
        if not 0 < certificate.confidence < 1:
            root["certificate"]["confidence"].fail("between 0 and 1")
    content = {
        "problem": problem,
        "feature_map": feature_map,
        "score_matrix": score_matrix,
        "rule_prices": tuple(prices),
        "solution": Solution(np.array([price.multiplier for price in prices]), **solution),
        "guarantee": read_guarantee(
            root["guarantee"], root["beta"].positive(), fingerprints[0].rows if fingerprints else math.nan
        ),
        "frequencies": frequencies,
        "rounded": all(rounding.round_share(share) == share for share in frequencies.values()),
        "fingerprints": fingerprints,
        "certificate": certificate,
        "fitted_rates": _read_fitted_rates(root["fitted_rates"]) if "fitted_rates" in root.value else None,
        "card": Card.from_node(root["card"]),
        "calibration": calibration,
        "group_rates": _read_group_rates(root, problem, feature_map),
        "hard": HardDecisions(**root["hard"].fields(HardDecisions, signed=HardDecisions._fields))
        if "hard" in root.value
        else None,
        "vacuous": tuple(node.text() for node in root["vacuous"].list()) if "vacuous" in root.value else (),
    }
    rest = {name: value for name, value in root.value.items() if name != "checksum"}
    if root["checksum"].text() != compute_digest(rest):
        raise BadValueError(
            "the checksum does not match the content, so the file was changed after it was saved"
        )
    if root["hash"].text() != compute_digest(
        decision_rule_to_dict(feature_map, score_matrix, root["beta"].positive(), calibration)
    ):
        raise BadValueError("the hash does not match the decision rule")
    return content


def read_problem(root: Node, space: ActionSpace) -> Problem:
    rules = [node.text() for node in root["rules"].list()]
    return Problem(root["minimize"].text(), rules, space.classes, space.decisions, space.reject)


def _read_rule(node: Node) -> str:
    return renew_text(node.text())


def read_feature_map(root: Node) -> FeatureMap:
    decisions = root["decisions"]
    kind, classes = decisions["kind"].one_of(ACTION_SPACES), _read_values(decisions["classes"])
    options = _read_values(decisions["options"]) if "options" in decisions.value else ()
    fewest = max(len(classes), 2) if classes or len(options) < 2 else 0
    if len(set(classes)) < fewest:
        raise BadValueError(
            f"policy.decisions.classes must be at least {fewest} different labels, got {classes}"
        )
    space = make_action_space(kind, classes, decisions["reject"].scalar(), options)
    attributes = {
        name: Attribute(**node.fields(Attribute, values=_read_values))
        for name, node in root["attributes"].items()
    }
    features = []
    for node in root["features"].list():
        event, source = _read_event(node["event"], space, attributes), node["source"]
        if source.value is None:
            features.append(Feature(None, event))
            continue
        name, item = source["name"].text(), source["item"]
        if source["kind"].one_of(_SOURCE_KINDS.values()) == _SOURCE_KINDS[ReferenceColumn]:
            features.append(Feature(ReferenceColumn(name, item.one_of(space.actions)), event))
        else:
            features.append(Feature(CostColumn(name, item.one_of(range(len(space.actions)))), event))
    if len(set(features)) < len(features):
        raise BadValueError("policy.features must be all different, got duplicates")
    return FeatureMap(space, tuple(features), attributes)


def _read_values(node: Node) -> tuple[Any, ...]:
    return tuple(value.scalar() for value in node.list())


def read_frequencies(node: Node, feature_map: FeatureMap) -> dict[Any, float]:
    return {
        _read_event(item["event"], feature_map.action_space, feature_map.attributes): item[
            "frequency"
        ].positive()
        for item in node.list()
    }


def _read_event(
    node: Node, space: ActionSpace, attributes: Mapping[str, Attribute]
) -> tuple[tuple[str, Any], ...]:
    event = {}
    for name, value in node.items():
        if name != LABEL and name not in attributes:
            raise BadValueError(
                f"{node.place} must refer to attributes of the policy, got an unknown attribute {name!r}"
            )
        event[name] = value.one_of(space.classes if name == LABEL else attributes[name].values)
    return tuple(sorted(event.items()))


def _read_group_rates(root: Node, problem: Problem, feature_map: FeatureMap) -> tuple[GroupRate, ...]:
    """Read the rate of each group if the objective is the worst rate of a group; return () otherwise."""
    if not isinstance(problem.minimize, Worst):
        return ()
    names = problem.minimize.by
    found = [
        GroupRate(
            **node.fields(
                GroupRate,
                group=lambda group: tuple((name, group[name].scalar()) for name in names),
                rate=lambda rate: math.nan if rate.value is None else rate.number(),
            )
        )
        for node in root["group_rates"].list()
    ]
    values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
    groups = problem.minimize.list_groups(feature_map.action_space.classes, values)
    if [one.group for one in found] != list(groups):
        raise BadValueError("policy.group_rates must have the groups of policy.minimize, got others")
    return tuple(found)


def _read_fitted_rates(root: Node) -> FittedRates:
    found = root.fields(
        FittedRates,
        rules=lambda rules: tuple(
            FittedRate(**node.fields(FittedRate, signed=["excess"], rule=_read_rule)) for node in rules.list()
        ),
        rows_needed=lambda node: math.inf if node.value is None else node.positive(zero=True),
        softness=Node.positive,
    )
    return FittedRates(**found)


def guarantee_to_dict(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as a dict for a JSON file, without the number of rows and without unknown terms."""
    terms = asdict(guarantee)
    left_out = ["rows"] if math.isfinite(guarantee.most_slack) else ["rows", "most_slack"]
    left_out += [] if guarantee.chance else ["chance"]
    return {name: value for name, value in terms.items() if name not in left_out}


def read_guarantee(node: Node, beta: float, rows: float) -> Guarantee:
    """Read a guarantee from a JSON file, given beta and the number of fitted rows."""
    terms = node.fields(Guarantee, without=["beta", "rows"])
    if "most_slack" not in terms:
        terms["most_slack"] = math.nan if terms["multiplier_norm"] else math.inf
    return Guarantee(**terms, beta=beta, rows=float(rows))
