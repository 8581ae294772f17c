"""The scikit-learn front door: a classifier that obeys rules."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
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

from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.data.groups import KnownGroup
from bylaw.errors import GuaranteeWarning
from bylaw.estimators.cross_fitting import is_frozen, with_probabilities
from bylaw.estimators.fit_inputs import (
    check_known,
    check_two_dimensional,
    codes_among,
    groups_of,
    labels_of,
    models_among,
    reference_labels,
    references_by_name,
    weights_of,
)
from bylaw.estimators.group_models import hidden_groups, hidden_names, key_of
from bylaw.estimators.judgement import Judgement
from bylaw.estimators.metadata_routing import Routes, name_of, router
from bylaw.estimators.settings import Settings
from bylaw.estimators.training import Trained, Training
from bylaw.fitting.bias_correction import FEW_ROWS
from bylaw.fitting.solve import solve
from bylaw.formulation.linear_form import admit_values
from bylaw.language.expressions import Rate, format_conditions
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy


def _decides(sets: bool, instead: str) -> Any:
    def check(classifier: Any) -> bool:
        fitted = getattr(classifier, "policy_", None)
        if ((fitted.problem if fitted else classifier._problem()).kind == "sets") != sets:
            raise AttributeError(instead)
        return True

    return available_if(check)


class ConstrainedClassifier(Settings, Judgement, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
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
    calibrator
        a simple classifier, or None. Of a row the policy sees only the models' probabilities; the
        calibrator learns what these are worth: P(label | scores) and P(group | scores), from
        log-ratios of all of them, on the rows that choose the policy.
    decisions, reject
        as in `Problem`. `reject="auto"` is "reject" for labels that are text, and for
        numbers -1, or one less than the least of them.
    cv
        a number of folds, or a splitter: each row is predicted by a model trained on other folds,
        and the models in use are trained on all rows. A fraction such as 0.5: the models are
        trained on the other rows, and the policy is chosen on this part.
    correction
        True: the rules hold on the labels and groups that `fit` sees, with a margin for new rows.
        False: they hold on what the models' probabilities predict, as in the paper.
    margin
        of the correction: every rule is tightened by this many standard errors of its rate, or by half
        of what leaves a policy, if that is less. With zero, a binding rule is missed on every other
        set of new rows.
    guarantee, confidence
        "high_probability": all rules hold together on new rows with this confidence. A part of the rows is
        held out, from the models too, and the least cautious policy that it certifies is chosen.
    certificate
        that part, a fraction, drawn at random whatever `cv` is.
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
        calibrator: Any = None,
        decisions: str = "auto",
        reject: Any = "auto",
        cv: Any = 5,
        correction: bool = True,
        margin: float = 1.0,
        guarantee: str | None = None,
        confidence: float = 0.95,
        certificate: float = 0.3,
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
        self.calibrator = calibrator
        self.decisions = decisions
        self.reject = reject
        self.cv = cv
        self.correction = correction
        self.margin = margin
        self.guarantee = guarantee
        self.confidence = confidence
        self.certificate = certificate
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
        self._check_options()
        model = with_probabilities(self.estimator, "estimator")
        X = self._rows(X, reset=True)
        labels, classes = labels_of(model, X, y)
        problem = self._problem(classes)
        weights = None if sample_weight is None else weights_of(sample_weight, X)
        beside = {"sensitive_features": sensitive_features, "reference": reference}
        routes = Routes(self, weights, params, {k: v for k, v in beside.items() if v is not None})
        groups = groups_of(sensitive_features, problem.attributes, X)
        guessed = hidden_names(self.group_estimator, problem)
        check_known(problem.attributes, {*groups, *guessed}, sensitive_features)
        sources = references_by_name(reference, problem.references)
        references = reference_labels(sources, problem.references, X, sensitive_features, problem.attributes)
        training = self._training(model, X, problem, labels, classes, groups, routes)
        self.trained_, self.policy_ = self._choose(problem, training, references)
        self.classes_ = classes
        self.references_ = models_among(sources)
        self.actions_ = _as_array([*classes.tolist(), *self.policy_.actions[len(classes) :]])
        return self

    def _choose(
        self, problem: Problem, training: Training, references: Mapping[str, NDArray[Any]]
    ) -> tuple[Trained, Policy]:
        """The models, and the policy on rows that they have not seen."""
        chosen, kept = self._parts(len(training))
        everything, training = training, training if kept is None else training.rows(chosen)
        known = {name: column[chosen] for name, column in references.items()}
        evidence, trained = training.evidence(known), training.trained()
        held_out = None
        if kept is not None:
            there = {name: column[kept] for name, column in references.items()}
            held_out = trained.held_out(everything.rows(kept), there)
        seen = training.hidden_seen
        policy = solve(
            problem,
            evidence,
            labels=training.chosen_labels if self.correction else None,
            groups=seen if self.correction and seen else None,
            margin=self.margin if self.correction and held_out is None else 0.0,
            guarantee=self.guarantee,  # type: ignore[arg-type]
            confidence=self.confidence,
            held_out=held_out,
            solver=self.solver,
            beta=self.beta,
            tol=self.tol,
            rng=None if self.random_state is None else self._generator(),
        )
        self._warn_of_small_cells(policy, len(training.part))
        looked_at = training.looked_at(trained, policy, known)
        return trained, replace(policy, fingerprints=(*policy.fingerprints, *looked_at))

    def _warn_of_small_cells(self, policy: Policy, n_rows: int) -> None:
        cells = {event: round(share * n_rows) for event, share in policy.frequencies.items()}
        if small := {event: count for event, count in cells.items() if count < FEW_ROWS}:
            fewest = sorted(small.items(), key=lambda item: item[1])[:3]
            shown = "; ".join(f"{format_conditions(event)}: {count} rows" for event, count in fewest)
            warnings.warn(
                f"rules speak of {len(small)} groups with fewer than {FEW_ROWS} rows ({shown}): nobody can "
                "tell whether they hold there. Merge small groups, or leave them out of the rules",
                GuaranteeWarning,
                stacklevel=4,
            )

    def _training(
        self,
        model: Any,
        X: Any,
        problem: Problem,
        labels: NDArray[Any] | None,
        classes: NDArray[Any],
        groups: Mapping[str, KnownGroup],
        routes: Routes,
    ) -> Training:
        estimators, product = self.group_estimator, self.joint == "product"
        codes, calibrator = codes_among(labels, classes), self.calibrator
        hidden = hidden_groups(estimators, problem, tuple(classes.tolist()), groups, codes, product)
        return Training(
            model=model,
            hidden=hidden,
            X=X,
            labels=labels,
            label_codes=codes,
            classes=classes,
            groups=groups,
            cv=self.cv,
            split_params=routes.to_splitter,
            random_state=self._seed(),
            n_jobs=self.n_jobs,
            calibrator=self.calibrator,
            calibrator_params={} if calibrator is None else routes.to_model("calibrator", calibrator),
            weights=routes.weights,
            params=routes.to_model("estimator", model),
            group_params=[routes.to_model(name_of(key_of(estimators, h.names)), h.model) for h in hidden],
        )

    @property
    def multipliers_(self) -> dict[str, float]:
        return self.policy_.multipliers

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
        """Probabilities of the decision over `actions_`, (n_rows, n_actions); for sets, the probability that
        each label is included. The model's probabilities of the labels are `estimator_.predict_proba`."""
        evidence = self._evidence(X, sensitive_features, reference)
        return self.policy_.probabilities(evidence)

    def _decide(self, X: Any, sensitive_features: Any, reference: Any, ids: Any) -> NDArray[Any]:
        evidence = self._evidence(X, sensitive_features, reference)
        if ids is not None:
            key = str(self.random_state) if isinstance(self.random_state, int | np.integer) else None
            return self.policy_.decide(evidence, ids=ids, key=key, method=self.method)  # type: ignore[arg-type]
        rng = None if self.method == "argmax" else self._generator()
        return self.policy_.decide(evidence, rng=rng, method=self.method)  # type: ignore[arg-type]

    # Evidence, at fit and at decision time.

    def _evidence(
        self, X: Any, sensitive_features: Any, reference: Any, compared: Sequence[str] = ()
    ) -> Evidence:
        """Of new rows; with other earlier models than the rules compare with, if these are asked about."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        problem, attributes = self.policy_.problem, self.policy_.feature_map.attributes
        known = [name for name in problem.attributes if name not in self._hidden_names]
        groups = groups_of(sensitive_features, known, X)
        check_known(known, groups, sensitive_features)
        groups = {name: admit_values(name, group, attributes[name].values) for name, group in groups.items()}
        names = list(dict.fromkeys((*problem.references, *compared)))
        sources = {**self.references_, **references_by_name(reference, names)}
        references = reference_labels(sources, names, X, sensitive_features, problem.attributes)
        return self.trained_.evidence(X, groups, references)

    def _rows(self, X: Any, reset: bool) -> Any:
        """X as it is, for the models to read, once its columns are known to be those of the fit."""
        check_two_dimensional(X)
        validate_data(self, X, skip_check_array=True, reset=reset)
        return indexable(X)[0]

    # scikit-learn's own questions.

    def get_metadata_routing(self) -> MetadataRouter:
        return router(self, self.estimator, self.group_estimator, self.calibrator, self.cv)

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
        if not self.__sklearn_is_fitted__():
            return diagram
        return diagram.removesuffix("</body>") + self.policy_._repr_html_() + "</body>"


def _as_array(actions: list[Any]) -> NDArray[Any]:
    """Labels of one type as such, of several as objects."""
    return np.array(actions, dtype=object if len({type(a) for a in actions}) > 1 else None)
