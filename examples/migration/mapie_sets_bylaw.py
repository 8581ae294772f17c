from digit_images import X, X_new, model, y, y_new

from bylaw import ConstrainedClassifier, miscoverage, size

rule = miscoverage() <= 0.05
clf = ConstrainedClassifier(
    model, rule, minimize=size(), random_state=0
)
clf.fit(X, y)
sets = clf.predict_set(X_new)
print(clf.audit(X_new, y_new))
