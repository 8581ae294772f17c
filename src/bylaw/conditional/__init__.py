"""Models of conditional probabilities: of labels, of groups, of both together. They need scikit-learn."""

from bylaw.conditional.joint import JointClassifier
from bylaw.conditional.local_polynomial import LocalPolynomialClassifier

__all__ = ["JointClassifier", "LocalPolynomialClassifier"]
