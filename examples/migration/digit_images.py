"""1,797 images of digits: half to fit, half to test."""

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline


def split(seed=0):
    X, y = load_digits(return_X_y=True)
    return train_test_split(
        X, y, test_size=0.5, random_state=seed, stratify=y
    )


X, X_new, y, y_new = split()
model = make_pipeline(PCA(6), LogisticRegression(max_iter=1000))
