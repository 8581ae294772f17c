"""Models of the conditional probabilities of labels, of groups, and of both together, for scikit-learn."""

from bylaw.estimators.joint import JointClassifier
from bylaw.estimators.local_polynomial import LocalPolynomialClassifier

__all__ = ["JointClassifier", "LocalPolynomialClassifier"]
