from fairlearn.metrics import MetricFrame, selection_rate
from fairlearn.postprocessing import ThresholdOptimizer
from loan_files import X, X_new, model, race, race_new, y, y_new
from sklearn.metrics import accuracy_score

clf = ThresholdOptimizer(
    estimator=model,
    constraints="demographic_parity",
    predict_method="predict_proba",
    tol=0.02,
)
clf.fit(X, y, sensitive_features=race)
decisions = clf.predict(
    X_new, sensitive_features=race_new, random_state=0
)
frame = MetricFrame(
    metrics={"approved": selection_rate, "right": accuracy_score},
    y_true=y_new,
    y_pred=decisions,
    sensitive_features=race_new,
)
print(frame.by_group)
