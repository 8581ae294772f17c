from loan_files import X, X_new, model, race, race_new, y, y_new
from oxonfair import DataDict, FairPredictor, group_metrics as gm

model.fit(X, y)
clf = FairPredictor(model, DataDict(y, X, race))
clf.fit(gm.accuracy, gm.demographic_parity, 0.02)
new = DataDict(y_new, X_new, race_new)
decisions = clf.predict(new)
print(clf.evaluate_fairness(new))
