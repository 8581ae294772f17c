from ._calibration import (
    CHOICES as CHOICES,
    Calibrate as Calibrate,
    CalibratedEvidence as CalibratedEvidence,
    Calibration as Calibration,
    fit_calibration as fit_calibration,
)
from ._maps import LOWEST_LOG as LOWEST_LOG, METHODS as METHODS, CalibrationMap as CalibrationMap
