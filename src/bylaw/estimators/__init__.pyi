from ._constrained_classifier import ConstrainedClassifier as ConstrainedClassifier
from ._joint import JointClassifier as JointClassifier
from ._local_polynomial import LocalPolynomialClassifier as LocalPolynomialClassifier
from ._violations import Violations as Violations
