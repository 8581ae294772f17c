"""A scikit-learn classifier whose decisions satisfy rules."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from bylaw._base import (
    CONFIDENCE,
    Floats,
    check_choice,
    check_fraction,
    check_margin,
    check_positive,
    check_whole,
    find_stack_level,
)
from bylaw.calibration import CHOICES, METHODS
from bylaw.errors import BylawError, EvidenceError, GuaranteeWarning, OptionError
from bylaw.estimators._group_models import find_hidden_names, make_hidden_groups
from bylaw.estimators._inputs import (
    FitRows,
    check_row_parameters,
    is_model,
    list_atoms,
    read_groups,
    read_labels,
    read_propensity_weights,
    read_references,
    read_weights,
    select_references,
)
from bylaw.estimators._sklearn_contract import (
    Routes,
    check_random_state,
    check_search,
    ensure_probabilities,
    is_fraction,
    is_frozen,
    make_generator,
    make_router,
    make_seed,
    name_route,
)
from bylaw.estimators._training import TrainedModels, Training, split_held_out
from bylaw.estimators._violations import Violations
from bylaw.fitting import Frontier, as_solver, fit_problem, frontier, make_fitter
from bylaw.language import LABEL, Objective, Problem, Rate, format_conditions
from bylaw.policy import Explanation, Policy, explain, hash_evidence
from bylaw.program import admit_values, has_rows
from bylaw.reductions import FEW_ROWS
from bylaw.rows import Evidence, check_alignment, check_group_sizes, observe
from bylaw.testing import Audit, audit

if TYPE_CHECKING:
    from bylaw.report import Report

_HELD_OUT = 0.3  # default fraction of the rows that certify the policy, if the others train a model


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


@contextmanager
def _name_calibrator() -> Iterator[None]:
    """Replace `calibrate` by `calibrator`, the name of the parameter of the classifier, in raised errors."""
    try:
        yield
    except BylawError as problem:
        problem.message = problem.message.replace("calibrate=", "calibrator=").replace(
            "leave out calibrate,", "leave out calibrator,"
        )
        raise


def _decides_sets(sets: bool, instead: str) -> Callable[[Any], bool]:
    """Return a check for `available_if`: decisions must be sets of labels if `sets`, and else must not."""

    def check(classifier: Any) -> bool:
        policy = getattr(classifier, "policy_", None)
        kind = (policy.problem if policy else classifier._make_problem()).kind
        if (kind == "sets") != sets:
            raise AttributeError(instead)
        return True

    return check


class ConstrainedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier whose decisions satisfy rules, at the least cost.

    `fit` trains the estimator by cross-fitting and chooses the policy, a randomized decision rule, on its
    out-of-fold predictions. `fit` checks all options and raises an `OptionError` for an option that has no
    effect because of the others. Without rules, the decisions are those of least cost, and
    `group_estimator` and `reject` are ignored.

    Parameters
    ----------
    estimator : classifier
        The model of the labels, with `predict_proba`; a classifier with only `decision_function` is
        calibrated first. A `FrozenEstimator` is not trained again, and `fit` then needs no labels.
    rules : rule, family, str, or list of these, default=()
        The rules that the decisions must satisfy, such as `demographic_parity("sex", tol=0.02)` or
        `"rejected() <= 0.1"`. None means no rules.
    minimize : Rate, Worst or str, default="error()"
        The cost to minimize.
    group_estimator : classifier, dict or None, default=None
        None: groups are known at decision time, and passed to `predict` as `sensitive_features`.
        A classifier: groups are unknown at decision time, and it learns P(group | x), or P(group, label | x)
        if a rule refers to both. A dict {attribute: classifier}: only these attributes are unknown; use a
        tuple of attributes as the key of a model of their combinations.
    joint : {"model", "product"}, default="model"
        With a group estimator, for rules that refer to group and label together. "model": one model of both.
        "product": group and label are assumed to be independent given x.
    calibrator : "auto", str, classifier or None, default="auto"
        How the probabilities of the models are calibrated, on the rows that the policy is chosen on. "auto":
        by the method with the least cross-validated log loss, or not at all if no method improves it;
        without labels, and with `correction=False`, the probabilities are not calibrated. "temperature",
        "vector", "isotonic" and "dirichlet": by this method. None or "none": not at all. These calibrations
        are a part of the policy, `policy_.calibration`. A simple classifier: `fit` trains it to predict
        P(label | scores) and P(group | scores), where the scores are log-ratios of all probabilities.
    decisions : {"auto", "labels", "reject", "sets"} or list, default="auto"
        The kind of decisions: one label per row, a label or a rejection (abstention), or a set of labels
        (conformal prediction). "auto" infers it from the rates in the rules and the cost. A list contains all
        labels and further options, as in `Problem`.
    reject : str, number or "auto", default="auto"
        The value that `predict` returns for a rejection. "auto" is "reject" if labels are text. If they are
        numbers, it is -1, or one less than the smallest label if that is smaller.
    cv : int, float, splitter, iterable or None, default=None
        How the models are cross-fitted. A number of folds or a splitter: each row is predicted by a model
        trained on the other folds, and the final models are trained on all rows. None: 5 folds, or as many
        as the rarest class has rows, stratified and shuffled. A fraction such as 0.5: the policy is chosen on
        this part of the rows, and the models are trained on the rest. Leave it out if all models are frozen.
    correction : bool, default=True
        True: the rules are satisfied by the rates of the observed labels and groups, with a margin for new
        rows. False: they are satisfied by the rates that the models predict, as in the paper.
    margin : float or "auto", default="auto"
        With `correction=True`, every rule is tightened by this many standard errors of its rate, or by less
        if no policy satisfies the tightened rule. With zero, a binding rule is violated on about every second
        set of new rows. With "auto", all binding rules are satisfied together on new rows with a probability
        of about 95 %. With `correction=False` or a guarantee, only "auto" and zero are allowed, and the
        margin is zero.
    guarantee : {None, "high_probability"}, default=None
        "high_probability": all rules are satisfied together on new rows with this `confidence`. A part of the
        rows is held out from training and from choosing policies, and certifies the least cautious policy
        that passes the test.
    confidence : float or "auto", default="auto"
        The confidence of the guarantee, between 0 and 1. "auto" is 0.95. Without a guarantee, leave it out.
    held_out : float or "auto", default="auto"
        The fraction of the rows that certify the policy, sampled at random regardless of `cv`. "auto" is 0.3
        if a model is trained on the other rows, and 0.7 if `estimator` is frozen, because choosing a policy
        takes fewer rows. Without a guarantee, leave it out.
    largest_weight : float or None, default=None
        The largest sample weight that any row can have. A guarantee with sample weights needs it: rare rows
        with large weights may be absent from the held-out rows.
    solver : str, Solver or Optimizer, default="auto"
        As in `solve`.
    beta : float, "auto" or "paper", default="auto"
        The inverse temperature of the policy, as in `solve`.
    tol : float, default=1e-6
        The tolerance of the solver, as in `solve`.
    deterministic : bool, default=False
        True: decisions are deterministic, as in `solve`, and `predict` draws no random numbers.
    method : {"sample", "systematic", "argmax"}, default="sample"
        How `predict` samples decisions, as in `Policy.decide`.
    random_state : int, numpy Generator, numpy RandomState or None, default=None
        The random state for folds, held-out rows, sampled decisions and stochastic solvers. In `predict` with
        `ids`, a whole number is the key of the hash.
    n_jobs : int or None, default=None
        The number of folds fitted at the same time; -1 uses all cores. Without folds, leave it out.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels.
    actions_ : array of shape (n_actions,)
        The possible decisions: the labels, then the value of a rejection or the options, if there are any.
    policy_ : Policy
        The fitted policy.
    multipliers_ : dict
        The price (Lagrange multiplier) of each single rule; the keys are the texts of the rules.
    estimator_ : classifier
        The fitted model of the labels.
    group_estimators_ : dict
        The fitted models of unknown groups.
    references_ : dict
        The earlier models that were passed to `fit`, by name.

    See Also
    --------
    bylaw.solve : Fit a policy to given probabilities.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from bylaw import ConstrainedClassifier, rejected
    >>> X, y = make_classification(200, flip_y=0.2, random_state=0)
    >>> clf = ConstrainedClassifier(LogisticRegression(), [rejected() <= 0.2], margin=0, random_state=0)
    >>> clf.fit(X, y).actions_
    array([ 0,  1, -1])
    >>> clf.predict_proba(X).shape
    (200, 3)
    >>> clf.predict(X[:5], ids=["a", "b", "c", "d", "e"]).shape  # an id has the same decision in any batch
    (5,)
    >>> list(clf.multipliers_)
    ['rejected() <= 0.2']
    """

    def __init__(
        self,
        estimator: Any,
        rules: Any = (),
        *,
        minimize: Objective | str = "error()",
        group_estimator: Any = None,
        joint: str = "model",
        calibrator: Any = "auto",
        decisions: str | Sequence[Any] = "auto",
        reject: Any = "auto",
        cv: Any = None,
        correction: bool = True,
        margin: float | Literal["auto"] = "auto",
        guarantee: str | None = None,
        confidence: float | Literal["auto"] = "auto",
        held_out: float | Literal["auto"] = "auto",
        largest_weight: float | None = None,
        solver: Any = "auto",
        beta: Any = "auto",
        tol: float = 1e-6,
        deterministic: bool = False,
        method: str = "sample",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.rules = rules
        self.minimize = minimize
        self.group_estimator = group_estimator
        self.joint = joint
        self.calibrator = calibrator
        self.decisions = decisions
        self.reject = reject
        self.cv = cv
        self.correction = correction
        self.margin = margin
        self.guarantee = guarantee
        self.confidence = confidence
        self.held_out = held_out
        self.largest_weight = largest_weight
        self.solver = solver
        self.beta = beta
        self.tol = tol
        self.deterministic = deterministic
        self.method = method
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
        unlabelled: Any = None,
        unlabelled_sensitive_features: Any = None,
        propensity_weights: Any = None,
        **params: Any,
    ) -> Self:
        """Train the models and choose the policy.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            The features, in a form that the estimator accepts.
        y : array of shape (n_rows,), optional
            The labels; optional with a `FrozenEstimator`. They may be missing (None, NaN, NA, null, masked)
            on some rows: the model of the labels is trained on the other rows, and the policy is chosen on
            all. Rates of labels are then prediction-powered estimates, as in `solve`.
        sensitive_features : frame, dict, or array of shape (n_rows,), optional
            The groups that the rules refer to, one column for each attribute. Other columns are not read.
            Values may be missing if a group estimator predicts the group; it is trained on the other rows.
        reference : classifier, array of shape (n_rows,), dict or frame, optional
            For rules with `disagreement` or `omits`: a fitted earlier model, or its labels; for several
            models, a dict {name in the rules: model or labels}. A model is used again at decision time.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows, for the policy and for the models that accept weights.
        unlabelled : array or frame of shape (n_unlabelled, n_features), optional
            Further rows without labels. They are treated as rows of X with missing labels: the policy is also
            chosen on them, and each is predicted by the model of one fold.
        unlabelled_sensitive_features : frame, dict, or array of shape (n_unlabelled,), optional
            The groups of the unlabeled rows; needed if groups are known at decision time.
        propensity_weights : array of shape (n_rows,), optional
            If labels or groups are missing, 1 / P(observed | x) on the rows that have them; these weights
            are used for observed rates, but not to train the models. By default, the rows with labels and
            groups are assumed to be a random sample of all rows.
        **params
            Further arguments for the `fit` of the estimator.

        Returns
        -------
        ConstrainedClassifier
            The fitted classifier itself. An error leaves the result of an earlier fit unchanged.

        Raises
        ------
        OptionError
            If an option is out of range, or has no effect because of the others.
        EvidenceError
            If labels, groups or other columns that the rules or the models need are missing or do not fit the
            rows of X.
        InfeasibleRulesError
            If no policy satisfies all the rules.
        UncertifiedError
            If `guarantee` is set and the held-out rows do not certify any policy.

        Warns
        -----
        GuaranteeWarning
            If rules refer to groups that are too small to assess.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier, demographic_parity
        >>> X, y = make_classification(200, random_state=0)
        >>> sex = np.where(X[:, 0] > 0, "F", "M")
        >>> rule = demographic_parity("sex", tol=0.1)
        >>> clf = ConstrainedClassifier(LogisticRegression(), [rule], random_state=0)
        >>> clf.fit(X, y, sensitive_features=sex).classes_
        array([0, 1])
        """
        self._check_options()
        model = ensure_probabilities(self.estimator, "estimator")
        X = self._check_features(X, reset=True)
        own = {
            "sensitive_features": sensitive_features,
            "reference": reference,
            "propensity_weights": propensity_weights,
        }
        more = {
            "unlabelled": unlabelled,
            "unlabelled_sensitive_features": unlabelled_sensitive_features,
        }
        check_alignment({"X": X, "y": y, **own, "sample_weight": sample_weight, **params})
        check_alignment(more)
        codes, classes = read_labels(model, X, y)
        problem = self._make_problem(classes)
        self._check_combinations(model, problem)
        weights = None if sample_weight is None else read_weights(sample_weight, X)
        given = {name: value for name, value in (own | more).items() if value is not None}
        routes = Routes(self, weights, params, given)

        # Read the columns that the rules refer to.
        names, hidden = problem.attributes, []
        if self.group_estimator is not None:
            hidden = find_hidden_names(self.group_estimator, problem)
        groups = read_groups(sensitive_features, names, X, hidden)
        sources = select_references(reference, problem.references)
        models = {name: source for name, source in sources.items() if is_model(source)}
        needed = {"sensitive_features": {*names} - {*hidden}, "reference": sources.keys() - models.keys()}
        check_search(problem, [name for name, columns in needed.items() if columns])
        references = read_references(sources, problem.references, X, sensitive_features, names)
        propensity = read_propensity_weights(propensity_weights, X)
        rows = FitRows(X, codes, groups, references, weights, propensity)
        if unlabelled is not None:
            check_row_parameters(X, weights, sources, params, self.cv)
            unlabelled, features = (
                self._check_features(unlabelled, reset=False),
                unlabelled_sensitive_features,
            )
            groups = read_groups(features, names, unlabelled, hidden, "unlabelled_sensitive_features")
            references = read_references(models, problem.references, unlabelled, features, names)
            rows = rows.append(FitRows(unlabelled, None, groups, references))
        elif unlabelled_sensitive_features is not None:
            raise OptionError("unlabelled_sensitive_features has no effect without unlabelled: leave it out")
        if propensity is not None and not (rows.incomplete and self.correction):
            why = "with correction=False" if rows.incomplete else "if no label or group is missing"
            raise OptionError(f"propensity_weights has no effect {why}: leave it out")
        for name in rows.groups.keys() & {*problem.compared_attributes}:
            group = rows.groups[name]
            counts = np.bincount(group.codes[group.codes >= 0], minlength=len(group.values))
            check_group_sizes(group.values, counts, f"sensitive_features[{name!r}]")

        labels, hidden_groups = tuple(classes.tolist()), ()
        if hidden:
            product = self.joint == "product"
            hidden_groups = make_hidden_groups(
                self.group_estimator, problem, labels, rows.groups, rows.codes, product
            )
        else:  # raise before models are trained if a rule names an unknown label
            list_atoms(problem, labels, {name: group.values for name, group in rows.groups.items()})
        calibrator = None if isinstance(self.calibrator, str) else self.calibrator
        training = Training(
            rows=rows,
            model=model,
            hidden=hidden_groups,
            classes=classes,
            cv=self.cv,
            random_state=make_seed(self.random_state),
            n_jobs=self.n_jobs,
            calibrator=calibrator,
            params=routes.select_params("estimator", model),
            group_params=[routes.select_params(name_route(h.route), h.model) for h in hidden_groups],
            calibrator_params={} if calibrator is None else routes.select_params("calibrator", calibrator),
            split_params=routes.split_params,
        )
        self.trained_, self.policy_, self._fitted_rows = self._choose_policy(problem, training)
        self.classes_ = classes
        self.references_ = models
        actions = [*classes.tolist(), *self.policy_.actions[len(classes) :]]
        several_types = len({type(action) for action in actions}) > 1
        self.actions_ = np.array(actions, dtype=object if several_types else None)
        return self

    def _choose_policy(self, problem: Problem, training: Training) -> tuple[TrainedModels, Policy, Evidence]:
        """Fit the policy on out-of-fold predictions.

        Return the trained models, the policy, and the evidence that it was fitted on.
        """
        certifying = None
        if self.guarantee is not None:
            # Hold out rows, at random, from the models and from the choice of the policy.
            share = 1 - _HELD_OUT if is_frozen(self.estimator) else _HELD_OUT
            fraction = share if _is_auto(self.held_out) else self.held_out
            rows, held_out = split_held_out(len(training.rows), fraction, make_generator(self.random_state))  # type: ignore[arg-type]
            certifying, training = training.rows.select(held_out), training.select_rows(rows)
        evidence, trained = training.cross_fit()
        certified_by = None if certifying is None else trained.make_evidence(certifying, self.largest_weight)
        with _name_calibrator():
            fitter = make_fitter(
                problem,
                self._choose_columns(evidence),
                **self._choose_options(evidence),
                guarantee=self.guarantee,  # type: ignore[arg-type]
                confidence=CONFIDENCE if _is_auto(self.confidence) else self.confidence,  # type: ignore[arg-type]
                held_out=certified_by,
                solver=self.solver,
                beta=self.beta,
                tol=self.tol,
                deterministic=self.deterministic,
                rng=None if self.random_state is None else make_generator(self.random_state),
            )
            policy = fit_problem(fitter, problem)
        if not self.correction:
            self._warn_about_small_groups(policy, training)
        if training.splits:
            # Recognize the rows also as the trained models predict them.
            rows = policy.calibrate(trained.make_evidence(training.rows))
            fingerprints = hash_evidence(policy.feature_map, rows).join(policy.fingerprints)
            policy = replace(policy, fingerprints=fingerprints)
        return trained, policy, evidence

    def _choose_columns(self, rows: Evidence) -> Evidence:
        """Return the evidence, without observed labels and true groups if `correction` is False."""
        return rows if self.correction else rows.without_observed()

    def _choose_options(self, rows: Evidence) -> dict[str, Any]:
        """Return the arguments `calibrate` and `margin` for `solve` and `frontier`."""
        has_labels, calibrate = rows.labels is not None, self.calibrator
        if not isinstance(calibrate, str) or (
            calibrate in ("auto", "none") and not (has_labels and self.correction)
        ):
            calibrate = "none"  # a classifier as calibrator has calibrated the rows already
        elif not has_labels:
            raise OptionError(f"calibrator={calibrate!r} needs labels: pass y, or leave out calibrator")
        uncorrected = not self.correction or self.guarantee is not None
        return {"calibrate": calibrate, "margin": 0.0 if uncorrected else self.margin}

    def _warn_about_small_groups(self, policy: Policy, training: Training) -> None:
        groups, counts = training.policy_rows.groups, {}
        for event, share in policy.frequencies.items():
            observed = [groups[name].codes >= 0 for name, _ in event if name in groups]
            n_rows = np.logical_and.reduce(observed).sum() if observed else len(training.policy_rows)
            counts[event] = share * int(n_rows)
        tolerances = dict.fromkeys(counts, math.inf)
        for one in policy.expanded_rules:
            for event in tolerances.keys() & one.excess.by_condition().keys():
                tolerances[event] = min(tolerances[event], one.tolerance)
        small = {
            event: count
            for event, count in counts.items()
            if round(count) < FEW_ROWS or count * tolerances[event] < 1
        }
        if small:
            fewest = sorted(small, key=small.__getitem__)[:3]
            shown = "; ".join(f"{format_conditions(event)}: {small[event]:.0f} rows" for event in fewest)
            warnings.warn(
                f"rules refer to {len(small)} groups with fewer than {FEW_ROWS} rows, or so few that one "
                f"row changes the rate by more than the tolerance ({shown}): the rules cannot be assessed on "
                "these groups. Merge small groups, loosen these rules, or leave them out",
                GuaranteeWarning,
                stacklevel=find_stack_level(),
            )

    def _make_problem(self, classes: NDArray[Any] | None = None) -> Problem:
        reject = self.reject
        if _is_auto(reject):
            reject = "reject"
            if classes is not None and classes.dtype.kind in "iuf":
                least = classes.min().item()
                reject = type(least)(min(-1, least - 1))
        problem = Problem(self.minimize, self.rules, decisions=self.decisions, reject=reject)  # type: ignore[arg-type]
        if problem.arrays:
            raise OptionError(
                f"rules of a classifier must not refer to arrays of costs, got "
                f"custom({problem.arrays[0]!r}): pass a function of the evidence instead, custom(f)"
            )
        return problem

    def _check_options(self) -> None:
        """Raise an `OptionError` if an option is out of range, even if the option is not used."""
        check_choice(self.joint, "joint", ("model", "product"))
        check_choice(self.method, "method", ("sample", "systematic", "argmax"))
        check_choice(self.correction, "correction", (True, False))
        check_choice(self.deterministic, "deterministic", (True, False))
        check_choice(self.guarantee, "guarantee", (None, "high_probability"))
        if not _is_auto(self.margin):
            check_margin(self.margin)
        if not _is_auto(self.confidence):
            check_fraction(self.confidence, "confidence", example=CONFIDENCE)
        if not _is_auto(self.held_out):
            check_fraction(self.held_out, "held_out", example=_HELD_OUT)
        if self.largest_weight is not None:
            check_positive(self.largest_weight, "largest_weight")
        if self.beta not in ("auto", "paper"):
            check_positive(self.beta, "beta")
        check_positive(self.tol, "tol")
        as_solver(self.solver)
        check_random_state(self.random_state)
        if self.n_jobs is not None and check_whole(self.n_jobs, "n_jobs") == 0:
            raise OptionError("n_jobs must be a number of jobs, or -1 for all cores, got 0")
        if isinstance(self.calibrator, str):
            check_choice(self.calibrator, "calibrator", CHOICES)
        elif self.calibrator is not None:
            ensure_probabilities(self.calibrator, "calibrator")
        if is_frozen(self.calibrator):
            raise OptionError(
                "calibrator must not be frozen, because fit trains it: pass it without FrozenEstimator"
            )

    def _check_combinations(self, model: Any, problem: Problem) -> None:
        """Raise an `OptionError` if an option has no effect because of the other options."""
        estimators = self.group_estimator
        named = estimators if isinstance(estimators, Mapping) else {None: estimators}
        group_models = [ensure_probabilities(m, "group_estimator") for m in named.values() if m is not None]
        frozen = all(is_frozen(trained) for trained in (model, *group_models))
        certified = self.guarantee is not None
        margin = not _is_auto(self.margin) and self.margin != 0
        refusals = (
            (margin and not self.correction, "margin", "with correction=False"),
            (self.method != "sample" and self.deterministic, "method", "with deterministic=True"),
            (
                self.calibrator in METHODS and not self.correction,
                "calibrator",
                "with correction=False, unless it is a classifier",
            ),
            (margin and certified, "margin", "with a guarantee, which sets the margins"),
            (not _is_auto(self.confidence) and not certified, "confidence", "without a guarantee"),
            (not _is_auto(self.held_out) and not certified, "held_out", "without a guarantee"),
            (self.largest_weight is not None and not certified, "largest_weight", "without a guarantee"),
            (certified and not problem.rules, "guarantee", "without rules"),
            (self.joint != "model" and not group_models, "joint", "without a group_estimator"),
            (
                group_models and problem.rules and not problem.attributes,
                "group_estimator",
                "if no rule refers to a group",
            ),
            (
                not _is_auto(self.reject)
                and problem.rules
                and problem.kind != "reject"
                and self.reject not in problem.list_options(()),
                "reject",
                "if no rule refers to rejections, unless decisions='reject'",
            ),
            (self.cv is not None and frozen, "cv", "if all models are frozen"),
            (self.n_jobs is not None and frozen, "n_jobs", "if all models are frozen"),
            (self.n_jobs is not None and is_fraction(self.cv), "n_jobs", "with one split instead of folds"),
        )
        for is_refused, option, where in refusals:
            if is_refused:
                raise OptionError(
                    f"{option}={getattr(self, option)!r} has no effect {where}: leave out {option}"
                )

    @property
    def estimator_(self) -> Any:
        """The fitted model of the labels."""
        return self.trained_.model

    @property
    def group_estimators_(self) -> dict[Any, Any]:
        """The fitted group models, by attribute, or by tuple of attributes that are modeled together."""
        return {h.key: m for h, m in zip(self.trained_.hidden, self.trained_.group_models, strict=True)}

    @property
    def multipliers_(self) -> dict[str, float]:
        """The price (Lagrange multiplier) of each single rule.

        A price is the decrease of the cost, in percentage points, if the bound of the rule is loosened by one
        percentage point.
        """
        return self.policy_.multipliers

    @available_if(
        _decides_sets(False, "the decisions are sets of labels: use predict_set, one column per label")
    )
    def predict(
        self,
        X: Any,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        ids: Any = None,
        key: str | None = None,
    ) -> NDArray[Any]:
        """Return one decision per row, sampled with the probabilities of `predict_proba`.

        Not available if decisions are sets of labels.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            New rows.
        sensitive_features : frame, dict, or array of shape (n_rows,), optional
            The groups that the rules refer to. Groups that a group estimator predicts are not read.
        reference : array of shape (n_rows,), dict or frame, optional
            The labels of an earlier model, unless the model itself was passed to `fit`.
        ids : array of shape (n_rows,), optional
            One id per row, text or whole numbers: decisions are drawn by a hash of the id instead of
            `random_state`, so the same row gets the same decision in any batch. For `method="sample"` only.
        key : str, optional
            With `ids`, the key of the hash, as in `Policy.decide`; by default `random_state` if it is a whole
            number, and otherwise the digest of the policy. Neither is secret: pass a secret key if the
            persons whom the decisions concern can choose their ids.

        Returns
        -------
        array of shape (n_rows,)
            Decisions, which are among `actions_`.

        Raises
        ------
        EvidenceError
            If groups or labels of an earlier model are missing, or have values that were not in the fit.
        OptionError
            If `ids` are passed and `method` is not "sample", or a `key` is passed without `ids`.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> first = clf.predict(X, ids=range(200))
        >>> bool((clf.predict(X[150:], ids=range(150, 200)) == first[150:]).all())
        True
        """
        return self._decide(X, sensitive_features, reference, ids, key).astype(self.actions_.dtype)

    @available_if(_decides_sets(True, "the decisions are not sets of labels: use predict"))
    def predict_set(
        self,
        X: Any,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        ids: Any = None,
        key: str | None = None,
    ) -> NDArray[np.bool_]:
        """Return one set of labels per row, sampled with the probabilities of `predict_proba`.

        Available only if decisions are sets of labels.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            New rows.
        sensitive_features, reference, ids, key
            As in `predict`.

        Returns
        -------
        array of bool of shape (n_rows, n_classes)
            True where the label is in the set.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, n_classes=3, n_informative=4, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "miscoverage() <= 0.1", minimize="size()")
        >>> clf.fit(X, y).predict_set(X).shape
        (200, 3)
        """
        return self._decide(X, sensitive_features, reference, ids, key)

    def _decide(
        self, X: Any, sensitive_features: Any, reference: Any, ids: Any, key: str | None
    ) -> NDArray[Any]:
        if key is not None and ids is None:
            raise OptionError("key has no effect without ids: pass ids, or leave out key")
        evidence = self._make_evidence(X, sensitive_features, reference)
        rng = None
        if ids is None:
            rng = None if self.method == "argmax" else make_generator(self.random_state)
        elif key is None and isinstance(self.random_state, Integral):
            key = str(self.random_state)
        return self.policy_.decide(evidence, rng=rng, ids=ids, key=key, method=self.method)  # type: ignore[arg-type]

    def predict_proba(self, X: Any, *, sensitive_features: Any = None, reference: Any = None) -> Floats:
        """Return the probability of each decision on each row.

        The probabilities of the labels given X are `estimator_.predict_proba(X)`.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            New rows.
        sensitive_features, reference
            As in `predict`.

        Returns
        -------
        array of shape (n_rows, n_actions)
            The probability of each of `actions_`; if decisions are sets, of including each label.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> clf.predict_proba(X).sum(axis=1).round(6).tolist() == [1.0] * 200
        True
        """
        evidence = self._make_evidence(X, sensitive_features, reference)
        return self.policy_.probabilities(evidence)

    def evidence(
        self, X: Any, *, sensitive_features: Any = None, reference: Any = None, sample_weight: Any = None
    ) -> Evidence:
        """Return the evidence of new rows, for functions that take a policy and evidence.

        It has no observed labels, and only those groups that are known at decision time.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            New rows.
        sensitive_features, reference
            As in `predict`.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        Evidence
            The probabilities that the fitted models predict, with the groups and the labels of earlier
            models that the rules refer to.

        Raises
        ------
        EvidenceError
            If groups or labels of an earlier model are missing, or have values that were not in the fit.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> clf.evidence(X[:3])
        Evidence(3 rows, 2 classes)
        """
        return self._make_evidence(X, sensitive_features, reference, sample_weight=sample_weight)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
    ) -> float:
        """Return one minus the observed cost, averaged over the random decisions.

        If the cost is `error()`, this is the expected accuracy, in which a rejection is not an error; if it
        is `miscoverage()`, this is the coverage. Use it to compare models under the same rules, not to
        compare rules: allowing more rejections always improves the score.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Rows.
        y : array of shape (n_rows,)
            Labels of the rows; if some are missing, the cost is prediction-powered, as in `fit`.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows.
        sensitive_features, reference
            As in `predict`.

        Returns
        -------
        float
            One minus the cost; at most 1 if the cost is a rate.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> bool(clf.score(X, y) > clf.estimator_.score(X, y))  # the hardest rows are rejected
        True
        """
        rows = self._read_rows(X, y, sensitive_features, reference, sample_weight)
        cost, space = self.policy_.problem.minimize, self.policy_.action_space
        needs_labels = any(atom.needs_label(space) for atom, _ in cost.terms)
        if y is not None and needs_labels and LABEL in observe(rows).unseen:
            raise EvidenceError("y must have at least one label to score, got only missing labels")
        return 1.0 - self.policy_.expected(cost, rows)

    def expected(
        self,
        rate: Rate | str,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
        propensity_weights: Any = None,
    ) -> float:
        """Compute the observed rate on these rows, averaged over the random decisions.

        Parameters
        ----------
        rate : Rate or str
            A rate such as `error().given(sex="F")`, whether a rule refers to it or not.
        X : array or frame of shape (n_rows, n_features)
            Rows.
        y : array of shape (n_rows,), optional
            Labels of the rows; by default, the probabilities of the model are used instead. If some labels
            or groups are missing, the rate is prediction-powered, as in `fit`.
        sensitive_features : frame, dict, or array of shape (n_rows,), optional
            The groups that the rules and the rate refer to. Groups that a group estimator predicts may be
            left out; its probabilities are used instead.
        reference, sample_weight, propensity_weights
            As in `fit`.

        Returns
        -------
        float
            The expected rate.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> bool(clf.expected("rejected()", X) == clf.predict_proba(X)[:, -1].mean())
        True
        """
        query = Problem(rate)
        rows = self._read_rows(X, y, sensitive_features, reference, sample_weight, propensity_weights, query)
        return self.policy_.expected(query.minimize, rows)

    def violations(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
        propensity_weights: Any = None,
    ) -> Violations:
        """Compute the excess of each rule on these rows: its observed rate minus its bound.

        A rule with an excess above zero is violated.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Rows.
        y : array of shape (n_rows,), optional
            Labels of the rows; needed if a rule refers to labels. If some labels or groups are missing,
            rates are prediction-powered, as in `fit`.
        sensitive_features : frame, dict, or array of shape (n_rows,), optional
            The true groups that the rules refer to, including those that a group estimator predicts.
        reference, sample_weight, propensity_weights
            As in `fit`.

        Returns
        -------
        Violations
            A mapping from the text of each single rule to its excess; nan if no row meets its conditions.
            The printed form and `to_frame` are a small table with one line for each rule or family.

        Raises
        ------
        EvidenceError
            If labels or groups that a rule refers to are missing.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> list(clf.violations(X, y))
        ['rejected() <= 0.1']
        """
        rows = self._read_rows(X, y, sensitive_features, reference, sample_weight, propensity_weights)
        policy, space = self.policy_, self.policy_.action_space
        probabilities, observed = policy.probabilities(rows), observe(policy.calibrate(rows))
        unseen = observed.unseen
        if missing := [name for name in observed.hidden_groups if name in unseen and isinstance(name, str)]:
            raise EvidenceError(
                f"sensitive_features must have the true {missing} to assess the rules: pass these columns"
            )
        excesses: dict[str, float] = {}
        parts: dict[str, list[str]] = {}
        for one in policy.problem.expand(observed.classes, observed.group_values, space.options):
            if LABEL in unseen and any(atom.needs_label(space) for atom in one.rule.atoms()):
                raise EvidenceError("y is missing, and some rules refer to labels: pass y to assess them")
            excesses[str(one.rule)] = math.nan
            if has_rows(one.rule.excess, observed):
                excess = policy.expected(one.rule.excess, observed, probabilities=probabilities)
                excesses[str(one.rule)] = excess
            parts.setdefault(str(one.statement), []).append(str(one.rule))
        return Violations(excesses, list(parts.items()))

    def audit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
        propensity_weights: Any = None,
        rules: Any = None,
        **options: Any,
    ) -> Audit:
        """Test the rules on held-out rows: observed rates with confidence bounds, p-values and verdicts.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Held-out rows, which were not used in `fit`.
        y : array of shape (n_rows,), optional
            Labels of the rows. If some labels or groups are missing, each rule is tested on the rows that
            have all columns that it refers to.
        sensitive_features, reference, sample_weight, propensity_weights
            As in `violations`.
        rules : rule, family, str, or list of these, optional
            Rules to test, by default those of the fit.
        **options
            Further options of `bylaw.audit`: `decisions` (recorded decisions to test instead of the
            probabilities of the policy), `outcomes` and `limits` (observed costs and their ranges, for rules
            with `custom`), `largest_weight`, `confidence` (default 0.95), `method` (of the confidence
            bounds), `fitted_rows` and `min_cell`.

        Returns
        -------
        Audit
            A verdict on each rule and on all together, as in `bylaw.audit`.

        Raises
        ------
        EvidenceError
            If these rows were used in `fit`, or if labels or groups are missing.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(400, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0)
        >>> verdicts = clf.fit(X[:200], y[:200]).audit(X[200:], y[200:], confidence=0.9)
        >>> [rule.rule for rule in verdicts.rules]
        ['rejected() <= 0.1']
        """
        query = None if rules is None else Problem(self.policy_.problem.minimize, rules)
        rows = self._read_rows(X, y, sensitive_features, reference, sample_weight, propensity_weights, query)
        return audit(self.policy_, rows, rules=rules, **options)

    def explain(self, X: Any, *, sensitive_features: Any = None, reference: Any = None) -> Explanation:
        """Compute the contribution of each rule to the score of each action on each row.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            Rows.
        sensitive_features, reference
            As in `predict`.

        Returns
        -------
        Explanation
            The contributions, which add up to the scores, as in `bylaw.explain`.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> list(clf.explain(X).rules)
        ['rejected() <= 0.1']
        """
        evidence = self._make_evidence(X, sensitive_features, reference)
        return explain(self.policy_, evidence)

    def frontier(self, sweep: Mapping[Any, Any], **options: Any) -> Frontier:
        """Compute the least cost of policies for several levels of a rule (the numbers that bound its rate).

        The models are not trained again: for each level, a policy is fitted to the out-of-fold predictions
        of `fit`, with the same labels, groups, calibration and margins. With a guarantee, margins are zero,
        since the held-out rows certify the rules at their original levels only. The rows of the fit, which
        this needs, are kept in memory, but are not saved with the classifier.

        Parameters
        ----------
        sweep : dict
            {rule: levels} for one or two of the rules and families, as objects or as text, as in
            `bylaw.frontier`.
        **options
            `tol` (the tolerance of the solver, by default 1e-5) and `callback`, as in `bylaw.frontier`.

        Returns
        -------
        Frontier
            The `levels`, `cost`, `prices` and `policies`; notebooks display it as a curve.

        Raises
        ------
        InfeasibleRulesError
            If the rules conflict at every level.
        OptionError
            If the classifier was loaded from a file, which does not contain the rows of the fit.

        See Also
        --------
        bylaw.frontier : Compute the least cost for given probabilities.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(200, flip_y=0.2, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0).fit(X, y)
        >>> curve = clf.frontier({"rejected() <= 0.1": [0.05, 0.1, 0.2]})
        >>> bool((curve.cost[:-1] > curve.cost[1:]).all())  # more rejections, fewer errors
        True
        """
        rows = self._get_fitted_rows("frontier")
        fixed = {**self._choose_options(rows), "solver": self.solver, "beta": self.beta}
        return frontier(self.policy_.problem, self._choose_columns(rows), sweep, **fixed, **options)

    def report(
        self,
        path: str | PathLike[str] | None = None,
        X: Any = None,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
        propensity_weights: Any = None,
        **options: Any,
    ) -> Report:
        """Write an HTML report on the fitted policy: its decisions, tests of its rules, and their cost.

        Parameters
        ----------
        path : str or path, optional
            The file to write, such as "report.html".
        X, y, sensitive_features, reference, sample_weight, propensity_weights : optional
            Held-out rows, as in `audit`, on which the rules are tested. By default, rates are estimated on
            the rows of the fit.
        **options
            Further options of `bylaw.report.report`, such as `title`, `confidence` and `levels`.

        Returns
        -------
        Report
            The report, which notebooks display and `save` writes to a file.

        Raises
        ------
        OptionError
            If the classifier was loaded from a file, which does not contain the rows of the fit.
        EvidenceError
            If these rows were used in `fit`, or if labels or groups are missing.

        Examples
        --------
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from bylaw import ConstrainedClassifier
        >>> X, y = make_classification(400, random_state=0)
        >>> clf = ConstrainedClassifier(LogisticRegression(), "rejected() <= 0.1", random_state=0)
        >>> page = clf.fit(X[:200], y[:200]).report(None, X[200:], y[200:], levels=0, title="Referrals")
        >>> "<h1>Referrals</h1>" in page.html
        True
        """
        from bylaw.report import report  # takes time to import, and few calls need it

        rows = self._get_fitted_rows("report")
        columns = {"y": y, "sensitive_features": sensitive_features, "reference": reference}
        columns |= {"sample_weight": sample_weight, "propensity_weights": propensity_weights}
        held_out = None
        if X is not None:
            held_out = self._read_rows(X, y, sensitive_features, reference, sample_weight, propensity_weights)
            held_out = held_out.with_observed(largest_weight=self.largest_weight)
        elif alone := [name for name, column in columns.items() if column is not None]:
            raise OptionError(
                f"{alone[0]} must be passed together with X, the held-out rows: pass both, or neither"
            )
        page = report(self.policy_, rows, held_out=held_out, **options)
        if path is not None:
            page.save(path)
        return page

    def _get_fitted_rows(self, method: str) -> Evidence:
        check_is_fitted(self)
        if self._fitted_rows is None:
            raise OptionError(
                f"{method}() needs the rows of the fit, which are not saved with a classifier: fit the "
                f"classifier again, or call bylaw.{method} with the evidence of other rows"
            )
        return self._fitted_rows

    def _make_evidence(
        self,
        X: Any,
        sensitive_features: Any,
        reference: Any,
        compared: Sequence[str] = (),
        sample_weight: Any = None,
    ) -> Evidence:
        """Return the evidence of new rows: predicted probabilities, known groups, labels of earlier models.

        `compared` names earlier models that are needed besides those in the rules.
        """
        check_is_fitted(self)
        X = self._check_features(X, reset=False)
        index = check_alignment({"X": X, "sensitive_features": sensitive_features, "reference": reference})
        problem, attributes = self.policy_.problem, self.policy_.feature_map.attributes
        hidden = {name for group in self.trained_.hidden for name in group.names}
        known = [name for name in problem.attributes if name not in hidden]
        groups = read_groups(sensitive_features, known, X)
        groups = {name: admit_values(name, group, attributes[name].values) for name, group in groups.items()}
        names = list(dict.fromkeys((*problem.references, *compared)))
        sources = {**self.references_, **select_references(reference, names)}
        references = read_references(sources, names, X, sensitive_features, problem.attributes)
        evidence = self.trained_.make_evidence(FitRows(X, None, groups, references))
        index = check_alignment({"sample_weight": sample_weight}, index)
        weights = None if sample_weight is None else read_weights(sample_weight, X)
        return evidence.with_columns(weights=weights, index=index)

    def _read_rows(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        reference: Any,
        sample_weight: Any,
        propensity_weights: Any = None,
        query: Problem | None = None,
    ) -> Evidence:
        """Return the evidence of rows with observed labels and groups and the columns that `query` needs."""
        check_is_fitted(self)
        stated = self.policy_.problem
        query = query or stated
        rows = self._make_evidence(X, sensitive_features, reference, query.references, sample_weight)
        rows = rows.with_columns(index=check_alignment({"y": y}, rows.index))
        names = list(dict.fromkeys((*stated.attributes, *query.attributes)))
        groups = read_groups(sensitive_features, names, X, names)
        return rows.with_observed(labels=y, true_groups=groups, propensity_weights=propensity_weights)

    def _check_features(self, X: Any, reset: bool) -> Any:
        """Return X in the form that the models read; raise if its columns differ from those of the fit."""
        if len(shape := getattr(X, "shape", (0, 0))) == 1:
            raise EvidenceError(
                f"X must have rows and columns, got the shape {shape}. Reshape your data: X.reshape(-1, 1) "
                "if it is one feature, X.reshape(1, -1) or X.iloc[[0]] if it is one row"
            )
        validate_data(self, X, skip_check_array=True, reset=reset)
        return indexable(X)[0]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata from `fit` to the models and the splitter.

        Returns
        -------
        MetadataRouter
            The routing, for scikit-learn.
        """
        return make_router(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags = own.input_tags
        tags.target_tags.required = not is_frozen(self.estimator)
        if own.classifier_tags is not None and tags.classifier_tags is not None:
            tags.classifier_tags.multi_class = own.classifier_tags.multi_class
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Drop the rows of the fit, so that a saved classifier contains no labels or groups of rows."""
        state: Any = super().__getstate__()
        return {**state, "_fitted_rows": None} if "_fitted_rows" in state else state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "policy_") and hasattr(self, "actions_")

    def _html_repr(self) -> str:
        diagram = super()._html_repr()  # type: ignore[misc]
        if not self.__sklearn_is_fitted__():
            return diagram
        return diagram.removesuffix("</body>") + self.policy_._repr_html_() + "</body>"
