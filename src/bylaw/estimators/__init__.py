"""Models of conditional probabilities: of labels, of groups, of both together. They need scikit-learn."""

from bylaw.estimators.joint import JointClassifier
from bylaw.estimators.local_polynomial import LocalPolynomialClassifier

__all__ = ["JointClassifier", "LocalPolynomialClassifier"]
