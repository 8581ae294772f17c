"""The scikit-learn front door: a classifier that obeys rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    check_is_fitted,
    validate_data,
)

from bylaw.algebra import Rate
from bylaw.conditional.beside import (
    check_known,
    check_two_dimensional,
    groups_of,
    labels_of,
    reference_labels,
    references_by_name,
    weights_of,
)
from bylaw.conditional.crossfit import is_frozen, with_probabilities
from bylaw.conditional.hidden import hidden_groups, key_of
from bylaw.conditional.routing import fit_params, name_of, router
from bylaw.conditional.training import Training
from bylaw.decisions import Floats
from bylaw.errors import EvidenceError, OptionError
from bylaw.evidence import Evidence
from bylaw.explanation import Explanation, explain
from bylaw.groups import GroupProbabilities, KnownGroup
from bylaw.problem import Problem
from bylaw.solve import solve


def _decides(sets: bool, instead: str) -> Any:
    def check(classifier: Any) -> bool:
        if (classifier._problem().kind == "sets") != sets:
            raise AttributeError(instead)
        return True

    return available_if(check)


class ConstrainedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier whose decisions obey rules, at the least cost.

    `fit` trains the estimator and chooses the policy on rows that the estimator has not seen.

    Parameters
    ----------
    estimator
        any classifier with `predict_proba`; one with `decision_function` only is calibrated first. A
        `FrozenEstimator` is not trained again, and `fit` then needs no labels.
    rules
        rules and families, or their texts.
    minimize
        a rate, or its text.
    group_estimator
        None: groups are known at decision time, and passed to `predict` as `sensitive_features`.
        A classifier: groups are unknown then, and it learns P(group | x), or P(group, label | x)
        where a rule speaks of both. A dict {attribute: classifier}: only these are unknown.
    joint
        "model": one model of group and label together. "product": group and label are taken as
        independent given x.
    decisions, reject
        as in `Problem`. `reject="auto"` is "reject" for labels that are text, and for
        numbers -1, or one less than the least of them.
    cv
        a number of folds, or a splitter: each row is predicted by a model trained on other folds,
        and the models in use are trained on all rows. A fraction such as 0.5: the models are
        trained on the other rows, and the policy is chosen on this part.
    correction
        hold the rules on the labels and groups that `fit` sees, not on the probabilities alone.
    margin
        tighten every rule by this many standard errors, for the sake of new rows.
    solver, beta, tol
        as in `solve`.
    method
        of drawing decisions: "sample", "systematic" or "argmax", as in `Policy.decide`.
    random_state
        for folds, draws and stochastic solvers. With `ids`, a whole number is the key of the draws.
    n_jobs
        folds fitted at the same time.

    Attributes
    ----------
    estimator_, group_estimators_
        the fitted models.
    classes_, actions_
        the labels; the labels and, if there are rejections, their label.
    policy_
        the fitted `Policy`.
    multipliers_
        {rule: what one more unit of slack in it would save}.
    references_
        the earlier models that `fit` was given, by name.
    """

    def __init__(
        self,
        estimator: Any,
        rules: Any = (),
        *,
        minimize: Rate | str = "error()",
        group_estimator: Any = None,
        joint: str = "model",
        decisions: str = "auto",
        reject: Any = "auto",
        cv: Any = 5,
        correction: bool = True,
        margin: float = 0.0,
        solver: Any = "auto",
        beta: Any = "auto",
        tol: float = 1e-6,
        method: str = "sample",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.rules = rules
        self.minimize = minimize
        self.group_estimator = group_estimator
        self.joint = joint
        self.decisions = decisions
        self.reject = reject
        self.cv = cv
        self.correction = correction
        self.margin = margin
        self.solver = solver
        self.beta = beta
        self.tol = tol
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
        **params: Any,
    ) -> Self:
        """Train the models and choose the policy.

        Parameters
        ----------
        y
            (n_rows,) labels; may be left out with a `FrozenEstimator`.
        sensitive_features
            the groups that the rules speak of: a frame or dict of columns, or one column.
        reference
            for `disagreement` and `omits`: an earlier model, fitted, or its labels; for several, a
            dict or a frame of labels. A model given here is asked again at decision time.
        sample_weight
            (n_rows,) for the policy, and for the models that take weights.
        params
            passed to the estimator's `fit`.
        """
        model = with_probabilities(self.estimator, "estimator")
        X = self._rows(X, reset=True)
        labels, self.classes_ = labels_of(model, X, y)
        problem = self._problem()
        groups = groups_of(sensitive_features, problem.attributes, X)
        weights = None if sample_weight is None else weights_of(sample_weight, X)
        given = references_by_name(reference, problem.references)
        self.references_ = {name: source for name, source in given.items() if hasattr(source, "predict")}
        training = self._training(model, X, labels, groups, weights, params)
        evidence = training.evidence(reference_labels(given, {}, problem.references, X), weights)
        hidden = [name for group in training.hidden for name in group.names if name in groups]
        self.policy_ = solve(
            problem,
            evidence,
            labels=labels[training.part] if self.correction and labels is not None else None,
            groups={name: groups[name].rows(training.part) for name in hidden} if self.correction else None,
            margin=self.margin,
            solver=self.solver,
            beta=self.beta,
            tol=self.tol,
            rng=None if self.random_state is None else self._generator(),
        )
        self.trained_ = training.trained()
        self.actions_ = _as_array([*self.classes_.tolist(), *self.policy_.actions[len(self.classes_) :]])
        return self

    @property
    def estimator_(self) -> Any:
        """The fitted classifier."""
        return self.trained_.model

    @property
    def group_estimators_(self) -> dict[Any, Any]:
        """The fitted models of hidden groups, by attribute, or by a tuple of those that go together."""
        return {h.key: m for h, m in zip(self.trained_.hidden, self.trained_.group_models, strict=True)}

    @property
    def _hidden_names(self) -> set[str]:
        return {name for group in self.trained_.hidden for name in group.names}

    # Decisions.

    @_decides(False, "the decisions are sets of labels: use predict_set")
    def predict(
        self, X: Any, *, sensitive_features: Any = None, reference: Any = None, ids: Any = None
    ) -> NDArray[Any]:
        """One action per row, (n_rows,), drawn from `predict_proba` with `random_state`, or by `ids`: the
        same id then gets the same answer in any batch."""
        return self._decide(X, sensitive_features, reference, ids).astype(self.actions_.dtype)

    @_decides(True, "the decisions are not sets of labels: use predict")
    def predict_set(
        self, X: Any, *, sensitive_features: Any = None, reference: Any = None, ids: Any = None
    ) -> NDArray[np.bool_]:
        """(n_rows, n_classes): whether each label is in the set."""
        return self._decide(X, sensitive_features, reference, ids)

    def predict_proba(self, X: Any, *, sensitive_features: Any = None, reference: Any = None) -> Floats:
        """The law of the decision over `actions_`, (n_rows, n_actions); for sets, the chance that each label
        is included. The model's probabilities of the labels are `estimator_.predict_proba`."""
        evidence = self._evidence(X, sensitive_features, reference)
        return self.policy_.probabilities(evidence)

    def _decide(self, X: Any, sensitive_features: Any, reference: Any, ids: Any) -> NDArray[Any]:
        evidence = self._evidence(X, sensitive_features, reference)
        if ids is not None:
            key = str(self.random_state) if isinstance(self.random_state, int | np.integer) else None
            return self.policy_.decide(evidence, ids=ids, key=key, method=self.method)  # type: ignore[arg-type]
        rng = None if self.method == "argmax" else self._generator()
        return self.policy_.decide(evidence, rng=rng, method=self.method)  # type: ignore[arg-type]

    # Judgement.

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
    ) -> float:
        """One minus the observed cost (what is minimised), with the draws integrated out: the expected
        accuracy for `error()`, in which a rejection is no error; coverage for `miscoverage()`."""
        law, seen = self._observe(X, y, sensitive_features, reference, sample_weight)
        return 1.0 - self.policy_.expected(self.policy_.problem.minimize, seen, law=law)

    def expected(
        self,
        rate: Rate,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
    ) -> float:
        """A rate as observed on these rows, with the draws integrated out. Where labels or groups are not
        given, the models' probabilities stand in for them."""
        law, seen = self._observe(X, y, sensitive_features, reference, sample_weight)
        return self.policy_.expected(rate, seen, law=law)

    def violations(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
    ) -> dict[str, float]:
        """For each rule by name, its observed rate minus its bound: above zero, these rows break it."""
        law, seen = self._observe(X, y, sensitive_features, reference, sample_weight)
        rules = self.policy_.problem.expand(seen.classes, seen.group_values)
        if unseen := [name for name, g in seen.groups.items() if isinstance(g, GroupProbabilities)]:
            raise EvidenceError(f"to judge the rules, pass sensitive_features with the true {unseen}")
        kind = self.policy_.decisions.kind
        if y is None and any(a.needs_label(kind, seen.classes) for rule, _ in rules for a in rule.atoms()):
            raise EvidenceError("some of the rules speak of labels: to judge them, pass y")
        return {str(rule): self.policy_.expected(rule.excess, seen, law=law) for rule, _ in rules}

    def explain(self, X: Any, *, sensitive_features: Any = None, reference: Any = None) -> Explanation:
        """For each row, how each rule pulls at each action; the pulls add up to the score."""
        evidence = self._evidence(X, sensitive_features, reference)
        return explain(self.policy_, evidence)

    @property
    def multipliers_(self) -> dict[str, float]:
        return self.policy_.multipliers

    def _observe(
        self, X: Any, y: Any, sensitive_features: Any, reference: Any, weights: Any
    ) -> tuple[Floats, Evidence]:
        """The law on these rows, and the rows as they turned out."""
        evidence = self._evidence(X, sensitive_features, reference)
        law = self.policy_.probabilities(evidence)
        seen = evidence.observed(y, groups_of(sensitive_features, self.policy_.problem.attributes, X))
        return law, seen if weights is None else seen.replaced(weights=weights_of(weights, X))

    # Evidence, at fit and at decision time.

    def _evidence(self, X: Any, sensitive_features: Any, reference: Any) -> Evidence:
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        problem = self.policy_.problem
        groups = groups_of(sensitive_features, problem.attributes, X)
        check_known(problem.attributes, {*groups, *self._hidden_names})
        given = references_by_name(reference, problem.references)
        references = reference_labels(given, self.references_, problem.references, X)
        return self.trained_.evidence(X, groups, references)

    def _rows(self, X: Any, reset: bool) -> Any:
        """X as it is, for the models to read, once its columns are known to be those of the fit."""
        check_two_dimensional(X)
        validate_data(self, X, skip_check_array=True, reset=reset)
        return indexable(X)[0]

    def _training(
        self,
        model: Any,
        X: Any,
        labels: NDArray[Any] | None,
        groups: Mapping[str, KnownGroup],
        weights: Floats | None,
        params: Mapping[str, Any],
    ) -> Training:
        if self.joint not in ("model", "product"):
            raise OptionError(f"joint must be 'model' or 'product', not {self.joint!r}")
        hidden = hidden_groups(
            self.group_estimator, self._problem(), self.classes_.tolist(), groups, self.joint == "product"
        )
        return Training(
            model=model,
            hidden=hidden,
            X=X,
            labels=labels,
            classes=self.classes_,
            groups=groups,
            cv=self.cv,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            params=fit_params(self, "estimator", model, weights, params),
            group_params=[
                fit_params(self, name_of(key_of(self.group_estimator, h.names)), h.model, weights, {})
                for h in hidden
            ],
        )

    # What the constructor was given, checked.

    def _problem(self) -> Problem:
        reject = self.reject
        if isinstance(reject, str) and reject == "auto":
            reject = "reject"
            if hasattr(self, "classes_") and self.classes_.dtype.kind in "iuf":
                least = self.classes_.min().item()
                reject = type(least)(min(-1, least - 1))
        return Problem(self.minimize, self.rules, decisions=self.decisions, reject=reject)  # type: ignore[arg-type]

    def _generator(self) -> np.random.Generator:
        """The same draws for the same whole number, others at each call otherwise."""
        state = self.random_state
        return np.random.default_rng(state if not hasattr(state, "randint") else state.randint(2**31))

    # scikit-learn's own questions.

    def get_metadata_routing(self) -> MetadataRouter:
        return router(self, self.estimator, self.group_estimator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags = own.input_tags
        tags.target_tags.required = not is_frozen(self.estimator)
        if own.classifier_tags is not None and tags.classifier_tags is not None:
            tags.classifier_tags.multi_class = own.classifier_tags.multi_class
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "policy_") and hasattr(self, "actions_")

    def _html_repr(self) -> str:
        diagram = super()._html_repr()  # type: ignore[misc]
        return diagram + self.policy_._repr_html_() if self.__sklearn_is_fitted__() else diagram


def _as_array(actions: list[Any]) -> NDArray[Any]:
    """Labels of one type as such, of several as objects."""
    return np.array(actions, dtype=object if len({type(a) for a in actions}) > 1 else None)
