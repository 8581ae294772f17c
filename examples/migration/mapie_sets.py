from digit_images import X, X_new, model, y, y_new
from mapie.classification import SplitConformalClassifier
from mapie.metrics.classification import (
    classification_coverage_score,
)
from sklearn.model_selection import train_test_split

X_train, X_conform, y_train, y_conform = train_test_split(
    X, y, test_size=0.5, random_state=0
)
clf = SplitConformalClassifier(
    model.fit(X_train, y_train),
    confidence_level=0.95,
    conformity_score="lac",
)
clf.conformalize(X_conform, y_conform)
points, found = clf.predict_set(X_new)
sets = found[:, :, 0]
print(classification_coverage_score(y_new, found))
