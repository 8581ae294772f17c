from loan_files import X, X_new, model, y, y_new

from bylaw import ConstrainedClassifier, f1

clf = ConstrainedClassifier(
    model, minimize=1 - f1(0), random_state=0
)
clf.fit(X, y)
decisions = clf.predict(X_new)
print(clf.expected(f1(0), X_new, y_new))
