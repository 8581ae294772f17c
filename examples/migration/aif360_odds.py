import pandas
from aif360.algorithms.postprocessing import EqOddsPostprocessing
from aif360.datasets import BinaryLabelDataset
from aif360.metrics import ClassificationMetric
from loan_files import X, X_new, model, race, race_new, y, y_new


def dataset(labels, race):
    columns = {"approve": labels, "black": race == "black"}
    return BinaryLabelDataset(
        df=pandas.DataFrame(columns).astype(float),
        label_names=["approve"],
        protected_attribute_names=["black"],
    )


groups = {
    "unprivileged_groups": [{"black": 1}],
    "privileged_groups": [{"black": 0}],
}
model.fit(X, y)
clf = EqOddsPostprocessing(**groups, seed=0)
clf.fit(dataset(y, race), dataset(model.predict(X), race))
decided = clf.predict(dataset(model.predict(X_new), race_new))
decisions = decided.labels.ravel()
truth = dataset(y_new, race_new)
metric = ClassificationMetric(truth, decided, **groups)
print(metric.equalized_odds_difference(), metric.accuracy())
