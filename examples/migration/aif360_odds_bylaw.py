from loan_files import X, X_new, model, race, race_new, y, y_new

from bylaw import ConstrainedClassifier, equalized_odds

rule = equalized_odds("race", tol=0.05, between="groups")
clf = ConstrainedClassifier(model, rule, margin=0, random_state=0)
clf.fit(X, y, sensitive_features=race)
decisions = clf.predict(X_new, sensitive_features=race_new)
print(clf.audit(X_new, y_new, sensitive_features=race_new))
