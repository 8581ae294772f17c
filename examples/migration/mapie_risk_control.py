from loan_files import X, X_new, model, y, y_new
from mapie.risk_control import BinaryClassificationController
from sklearn.metrics import precision_score
from sklearn.model_selection import train_test_split

X_train, X_hold, y_train, y_hold = train_test_split(
    X, y, test_size=0.5, random_state=0
)
model.fit(X_train, y_train)
clf = BinaryClassificationController(
    model.predict_proba,
    risk="precision",
    target_level=0.92,
    confidence_level=0.9,
    best_predict_param_choice="recall",
)
clf.calibrate(X_hold, y_hold)
decisions = clf.predict(X_new)
print(precision_score(y_new, decisions))
