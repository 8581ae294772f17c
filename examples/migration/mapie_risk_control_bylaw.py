from loan_files import X, X_new, model, y

from bylaw import ConstrainedClassifier, precision

clf = ConstrainedClassifier(
    model,
    precision(1) >= 0.92,
    guarantee="high_probability",
    confidence=0.9,
    held_out=0.5,
    random_state=0,
)
clf.fit(X, y)
decisions = clf.predict(X_new)
print(clf.policy_.certificate)
