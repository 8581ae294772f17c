from error_parity import RelaxedThresholdOptimizer
from error_parity.evaluation import evaluate_fairness
from loan_files import X, X_new, model, race, race_new, y, y_new

model.fit(X, y)
clf = RelaxedThresholdOptimizer(
    predictor=lambda rows: model.predict_proba(rows)[:, 1],
    constraint="equalized_odds",
    tolerance=0.05,
    seed=0,
)
clf.fit(X, y, group=(race == "black").astype(int))
decisions = clf.predict(
    X_new, group=(race_new == "black").astype(int)
)
print(evaluate_fairness(y_new, decisions, race_new))
