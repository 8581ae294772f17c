"""Policies beside the rows that they are exported for: real ones, and awkward ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas
from sklearn.model_selection import train_test_split

from bylaw import (
    Columns,
    Evidence,
    Policy,
    Problem,
    accepted,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    omits,
    precision,
    predictive_parity,
    rejected,
    selected,
    size,
    solve,
    worst,
)
from bylaw.calibration import Calibration, CalibrationMap
from bylaw.calibration._calibration import GroupMap
from experiments import data
from helpers.generated_rows import Rows
from helpers.reference import softmax
from helpers.shared_data import DATA, shared

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Case:
    policy: Policy
    columns: Columns
    frame: pandas.DataFrame  # with ids in the column "id"
    evidence: Evidence

    @property
    def distribution(self):
        return self.policy.probabilities(self.evidence)

    def decisions(self, key=None):
        return self.policy.decide(self.evidence, ids=self.frame["id"].to_numpy(), key=key)


def case(problem, columns, frame, *, shaken=False, beta=50.0, deterministic=False):
    """Solved on the rows themselves; or shaken, so that every feature has its own weight."""
    evidence = columns.evidence(frame)
    policy = solve(problem, evidence, beta=beta, deterministic=deterministic)
    if shaken:
        weights = np.random.default_rng(0).normal(size=policy.score_matrix.shape) / 10
        policy = replace(policy, score_matrix=weights)
    return Case(policy, columns, frame, evidence)


def flat(rows):
    return [name for row in rows for name in row]


def spread(matrix, names):
    return dict(zip(names, matrix.reshape(len(matrix), -1).T, strict=True))


@cache
def everything():
    """Known text and numbers, unknown groups with joint probabilities, an earlier model, costs."""
    rows = Rows(n=700, K=3)
    rng = np.random.default_rng(1)
    joint = [[f"j{s}{k}" for k in range(3)] for s in range(2)]
    columns = Columns(
        ["p0", "p1", "p2"],
        classes=[0, 1, 2],
        groups={"sex": "sex", "dept": "dept", "race": {"b": "race b", "w": "race w"}},
        joint={"race": joint},
        references={"old": "old"},
        costs={"visit": ["c0", "c1", "c2", "c3"]},
    )
    frame = pandas.DataFrame(
        {
            "id": np.arange(700) - 350,
            **spread(rows.P, columns.probabilities),
            "sex": np.where(rows.group == 1, "F", "M"),
            "dept": rng.integers(0, 3, 700),
            **spread(rows.T, ["race b", "race w"]),
            **spread(rows.joint, flat(joint)),
            "old": rows.old,
            **spread(rng.normal(size=(700, 4)), columns.costs["visit"]),
        }
    )
    rules = [
        rejected() <= 0.1,
        demographic_parity(["sex", "dept", "race", ("sex", "dept")], tol=0.05),
        selected(1).given(sex="F", race="b") <= 0.7,
        equalized_odds("race", tol=0.1),
        equalized_odds("sex", tol=0.1),
        disagreement("old") <= 0.9,
    ]
    return case(Problem(error() + 0.1 * custom("visit"), rules), columns, frame, shaken=True)


AWKWARD = [
    'it\'s "so"',
    "back\\slash\\",
    "'; DROP TABLE rows; --",
    "名前 é",
    "line\nbreak\\'\t",
    "${x} $1 %s {}",
]


@cache
def awkward(names=True):
    """Names and values with all that can go wrong between quotes."""
    rng = np.random.default_rng(2)
    odd = [f"p {text}" for text in AWKWARD] if names else [f"p{i}" for i in range(6)]
    columns = Columns(
        odd,
        classes=AWKWARD,
        groups={"a 'b' \"c\"\\": 'group "x" `y` \\' if names else "x"},
        references={"old": "old's"},
    )
    frame = pandas.DataFrame(
        {
            "id": [f"{text} {i} \U0001f600" for i, text in enumerate(AWKWARD * 50)],
            **spread(rng.dirichlet(np.ones(6), 300), odd),
            columns.groups["a 'b' \"c\"\\"]: rng.choice(AWKWARD, 300),
            "old's": rng.choice([*AWKWARD, "reject"], 300),
        }
    )
    rules = [demographic_parity("a 'b' \"c\"\\", tol=0.9), disagreement("old") <= 0.95]
    return case(Problem(error(), rules), columns, frame, shaken=True)


@cache
def sets():
    """More labels than one hash has numbers for, and an earlier model."""
    rows = Rows(n=500, K=6)
    frame = pandas.DataFrame(
        {
            "id": [f"case {i}" for i in range(500)],
            **spread(rows.P, list("abcdef")),
            "old": np.array(list("abcdef"))[rows.old],
        }
    )
    columns = Columns(list("abcdef"), references={"before": "old"})
    return case(Problem(miscoverage(), [size() <= 1.5, omits("before") <= 0.4]), columns, frame, shaken=True)


@cache
def unknown_together():
    """Two unknown attributes that are only known together, and an earlier model's probabilities."""
    rng = np.random.default_rng(3)
    together = {(sex, race): f"{sex} and {race}" for sex in "FM" for race in (1, 2, 3)}
    columns = Columns(
        ["no", "yes"],
        groups={("sex", "race"): together},  # type: ignore[dict-item]
        references={"old": ["old no", "old yes"]},
    )
    frame = pandas.DataFrame(
        {
            "id": rng.permutation(10**15 + np.arange(400)),
            **spread(rng.dirichlet([1, 1], 400), ["no", "yes"]),
            **spread(rng.dirichlet(np.ones(6), 400), together.values()),
            **spread(rng.dirichlet([1, 1], 400), ["old no", "old yes"]),
        }
    )
    frame.loc[0, ["no", "yes", "old no", "old yes"]] = [1, 1e-200, 1, 1e-200]  # the product underflows
    rules = [
        demographic_parity(["sex", ("sex", "race")], tol=0.5),
        disagreement("old") <= 0.8,
        disagreement("old").given(label="yes") <= 0.9,
    ]
    return case(Problem(error(), rules), columns, frame, shaken=True)


@cache
def truths():
    """Labels and groups that are true or false, groups that are fractions, probabilities off by 1e-5."""
    rng = np.random.default_rng(4)
    P = rng.dirichlet([1, 1], 300) * rng.uniform(1 - 1e-5, 1 + 1e-5, (300, 1))
    P[:3] = [[-5e-10, 1], [1e-320, 1], [1, 0]]
    frame = pandas.DataFrame(
        {
            "id": np.arange(300),
            **spread(P, ["no", "yes"]),
            "member": rng.random(300) < 0.3,
            "share": rng.choice([0.1, 1 / 3, 2.0], 300),
            "old": rng.random(300) < 0.5,
        }
    )
    columns = Columns(
        ["no", "yes"],
        classes=[False, True],
        groups={"member": "member", "share": "share"},
        references={"old": "old"},
    )
    rules = [demographic_parity(["member", "share"], tol=0.5), disagreement("old") <= 0.8]
    return case(Problem(error(), rules), columns, frame, shaken=True)


@cache
def decided():
    """A large beta, no rules: nearly every row is decided, and scores are far apart."""
    rows = Rows(n=500, K=4)
    frame = pandas.DataFrame({"id": np.arange(500), **spread(rows.P, list("wxyz"))})
    return case(Problem(error(), []), Columns(list("wxyz")), frame, beta=1e5)


@cache
def experts(classes=("no", "maybe", "yes")):
    """Options beside labels, which an earlier model took, too, or rejected."""
    rows, rng = Rows(n=400, K=3), np.random.default_rng(9)
    columns = Columns(
        ["p0", "p1", "p2"],
        classes=list(classes),
        groups={"sex": "sex"},
        references={"old": "old", "soft": [f"soft {i}" for i in range(5)]},
        costs={"skill": [f"c{i}" for i in range(5)]},
        options=["junior's", "3"],
    )
    frame = pandas.DataFrame(
        {
            "id": np.arange(400),
            **spread(rows.P, columns.probabilities),
            "sex": np.where(rows.group == 1, "F", "M"),
            "old": rng.choice([*map(str, classes), "junior's", "3", "reject"], 400),
            **spread(rng.dirichlet(np.ones(5), 400), columns.references["soft"]),
            **spread(rng.uniform(size=(400, 5)), columns.costs["skill"]),
        }
    )
    rules = [
        selected("3") <= 0.1,
        demographic_parity("sex", tol=0.1, labels=[classes[1], "3"]),
        disagreement("old") <= 0.9,
        disagreement("soft") <= 0.95,
    ]
    return case(Problem(error() + custom("skill"), rules), columns, frame, shaken=True)


def numbered_experts():
    """Labels that are numbers, beside options that are text."""
    return experts((0, 1, 2))


@cache
def truths_or_ask():
    """Labels that are true or false, beside an option that is text, as the earlier model's column is."""
    rng = np.random.default_rng(11)
    frame = pandas.DataFrame(
        {
            "id": np.arange(300),
            **spread(rng.dirichlet([1, 1], 300), ["no", "yes"]),
            "old": rng.choice(["True", "False", "ask"], 300),
        }
    )
    columns = Columns(["no", "yes"], classes=[False, True], references={"old": "old"}, options=["ask"])
    rules = [selected("ask") <= 0.1, disagreement("old") <= 0.8]
    return case(Problem(error(), rules), columns, frame, shaken=True)


@cache
def routes():
    """Options without classes: costs and an earlier decision are all that is known."""
    rng, names = np.random.default_rng(10), ["small", "mid's", "large"]
    columns = Columns(
        groups={"lang": "lang"},
        references={"old": "old"},
        costs={cost: [f"{cost} {name}" for name in names] for cost in ("wrong", "usd")},
        options=names,
    )
    frame = pandas.DataFrame(
        {
            "id": [f"question {i}" for i in range(300)],
            "lang": rng.choice(["en", "fr"], 300),
            "old": rng.choice([*names, "reject"], 300),
            **spread(rng.uniform(size=(300, 3)), columns.costs["wrong"]),
            **spread(rng.uniform(size=(300, 3)), columns.costs["usd"]),
        }
    )
    rules = [custom("usd") <= 0.5, disagreement("old") <= 0.6, demographic_parity("lang", tol=0.05)]
    return case(Problem(custom("wrong"), rules), columns, frame, shaken=True)


@cache
def worst_group():
    """Weights of groups in place of an objective's."""
    frame, columns = _grouped()
    return case(Problem(worst(error(), by=("sex", "race")), [rejected() <= 0.1]), columns, frame)


@cache
def without_chance():
    """Every decision is one action's, whatever the id."""
    frame, columns = _grouped()
    rules = [rejected() <= 0.1, demographic_parity("sex", tol=0.05)]
    return case(Problem(error(), rules), columns, frame, beta="auto", deterministic=True)


def _grouped():
    rows, names = Rows(n=600, K=3, S=2), list("xyz")
    sex, race = np.array(["F", "M"])[rows.group], np.random.default_rng(8).integers(0, 2, 600)
    frame = pandas.DataFrame({"id": np.arange(600), **spread(rows.P, names), "sex": sex, "race": race})
    return frame, Columns(names, groups={"sex": "sex", "race": "race"})


def shaken_map(rng, n_cells, n_bends=0, full=False):
    """A map in which every number has its own part."""
    weights = np.diag(rng.uniform(0.2, 0.8, n_cells))
    if full:
        weights += rng.normal(size=(n_cells, n_cells)) / 10
    knots, bends = rng.uniform(-3, 0, (n_cells, n_bends)), rng.uniform(0, 0.5, (n_cells, n_bends))
    method = "isotonic" if n_bends else "dirichlet" if full else "vector"
    return CalibrationMap(method, 1e-4, rng.normal(size=n_cells) / 2, weights, knots, bends)


@cache
def calibrated():
    """Maps for two of three departments, for an unknown group, and for its combinations with the label."""
    plain, rng = everything(), np.random.default_rng(5)
    calibration = Calibration(
        classes=(0, 1, 2),
        labels=shaken_map(rng, 3, full=True),
        by="dept",
        by_value={0: shaken_map(rng, 3, n_bends=4), 2: shaken_map(rng, 3)},
        groups={"race": GroupMap(("w", "b"), shaken_map(rng, 2, n_bends=3))},  # in another order
        joint={"race": GroupMap(("w", "b"), shaken_map(rng, 6, full=True))},
    )
    return replace(plain, policy=replace(plain.policy, calibration=calibration))


@cache
def calibrated_labels():
    """A map for the labels alone: joint probabilities add up to them all the same."""
    plain, rng = everything(), np.random.default_rng(6)
    calibration = Calibration((0, 1, 2), shaken_map(rng, 3, n_bends=2))
    frame = plain.frame.copy()
    frame.loc[:9, ["p0", "p1", "p2"]] = [0.0, 1e-200, 1.0]
    frame.loc[:4, ["j00", "j10"]] = 0.0  # a label that the joint model rules out
    names = [f"j{s}{k}" for s in range(2) for k in range(3)]
    frame[names] /= frame[names].sum(axis=1).to_numpy()[:, None]
    policy = replace(plain.policy, calibration=calibration)
    return Case(policy, plain.columns, frame, plain.columns.evidence(frame))


@cache
def calibrated_sets():
    """Sets, with a calibration of six labels."""
    plain, rng = sets(), np.random.default_rng(7)
    calibration = Calibration(tuple("abcdef"), shaken_map(rng, 6, n_bends=3))
    return replace(plain, policy=replace(plain.policy, calibration=calibration))


@cache
def calibrated_together():
    """Two unknown attributes that are only known together, beside calibrated labels."""
    plain, rng = unknown_together(), np.random.default_rng(8)
    calibration = Calibration(("no", "yes"), shaken_map(rng, 2))
    return replace(plain, policy=replace(plain.policy, calibration=calibration))


CALIBRATED_CASES = {
    f.__name__: f for f in (calibrated, calibrated_labels, calibrated_sets, calibrated_together)
}


@cache
def quotients():
    """Rules on quotients and their differences, and a ratio to minimise."""
    rows = Rows(n=400, K=3)
    frame = pandas.DataFrame(
        {"id": np.arange(400), **spread(rows.P, list("abc")), "sex": np.where(rows.group == 1, "F", "M")}
    )
    rules = [
        error().given(decision="a", sex="F") <= 0.4,
        precision("b") >= 0.4,
        predictive_parity("sex", tol=0.05, labels=["c"]),
        rejected() <= 0.3,
    ]
    return case(Problem(error() / accepted(), rules), Columns(list("abc"), groups={"sex": "sex"}), frame)


AWKWARD_CASES = {
    f.__name__: f for f in (everything, awkward, sets, unknown_together, truths, decided, quotients)
}
OPTION_CASES = {f.__name__: f for f in (experts, numbered_experts, truths_or_ask, routes)}
AWKWARD_CASES |= OPTION_CASES
AWKWARD_CASES |= {f.__name__: f for f in (worst_group, without_chance)}
AWKWARD_CASES |= CALIBRATED_CASES


@cache
def adult():
    """Incomes: parity between known genders, rejections."""
    shared("adult.parquet")
    table = data.adult(DATA)
    X, X_new, y, _, _, groups = train_test_split(*table, test_size=0.5, random_state=0)
    scores = data.logistic(X).fit(X, y).predict_proba(X_new)
    names = [f"score {label}" for label in np.unique(y)]
    frame = pandas.DataFrame(
        {"id": groups.index.to_numpy(), **spread(scores, names), "gender": groups.gender, "race": groups.race}
    ).reset_index(drop=True)
    columns = Columns(names, classes=np.unique(y).tolist(), groups={"gender": "gender", "race": "race"})
    rules = [demographic_parity(["gender", "race"], tol=0.03), rejected() <= 0.05]
    return case(Problem(error(), rules), columns, frame, beta=200.0)


@cache
def wages():
    """Fifths of income: equalized odds for a gender that is only guessed."""
    shared("gss_wages.csv.gz")
    table = data.wages(DATA)
    pairs = (table.groups.gender + "/" + table.y).to_numpy()
    X, X_new, pair, _ = train_test_split(table.X, pairs, train_size=6000, random_state=0)
    model = data.logistic(X).fit(X, pair)
    joint = model.predict_proba(X_new[:10_000])
    labels, sexes = np.unique(table.y).tolist(), np.unique(table.groups.gender).tolist()
    cells = [[f"{sex}/{label}" for label in labels] for sex in sexes]
    assert flat(cells) == model.classes_.tolist()
    joint = joint.reshape(-1, 2, 5)
    frame = pandas.DataFrame(
        {
            "id": [f"person-{i}" for i in range(len(joint))],
            **spread(joint.sum(axis=1), labels),
            **spread(joint.sum(axis=2), sexes),
            **spread(joint, flat(cells)),
        }
    )
    columns = Columns(labels, groups={"gender": {sex: sex for sex in sexes}}, joint={"gender": cells})
    return case(Problem(error(), [equalized_odds("gender", tol=0.02)]), columns, frame, beta=200.0)


@cache
def churn():
    """Language models: at most 10 % of the answers changed, at most 10 % withheld."""
    shared("cosmosqa_llm_logits.npz")
    table = data.language_models(DATA)
    frame = table.X.assign(id=[f"Frage {i} ü" for i in range(len(table.X))], old=table.groups["7b"])
    columns = Columns(list(table.X), classes=range(6), references={"7b": "old"})
    rules = [disagreement("7b") <= 0.25, rejected() <= 0.1]
    return case(Problem(error(), rules), columns, frame, beta=200.0)


@cache
def images():
    """Sets of labels out of a hundred, two on average."""
    logits = np.load(shared("cifar100_logits.npy")).astype(float)[:3000]
    names = [f"label {i}" for i in range(100)]
    frame = pandas.DataFrame({"id": np.arange(3000), **spread(softmax(logits), names)})
    return case(Problem(miscoverage(), [size() <= 2]), Columns(names), frame, beta=200.0)


REAL_CASES = {f.__name__: f for f in (adult, wages, churn, images)}


def check(case, distribution, decisions, key=None):
    """The distribution to 1e-9, and every decision."""
    distance = np.abs(distribution - case.distribution).max()
    assert distribution.shape == case.distribution.shape
    assert distance <= TOLERANCE
    assert (np.asarray(decisions) == case.decisions(key)).all()
    return distance
