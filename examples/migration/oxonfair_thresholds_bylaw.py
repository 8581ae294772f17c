from loan_files import X, X_new, model, race, race_new, y, y_new

from bylaw import ConstrainedClassifier, demographic_parity

rule = demographic_parity("race", tol=0.02, between="groups")
clf = ConstrainedClassifier(model, rule, random_state=0)
clf.fit(X, y, sensitive_features=race)
decisions = clf.predict(X_new, sensitive_features=race_new)
print(clf.audit(X_new, y_new, sensitive_features=race_new))
