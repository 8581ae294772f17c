"""A policy as an MLflow model: it takes a frame of scores, groups and ids and returns decisions.

python mlflow_pyfunc.py policy.json rows.parquet MODEL_FOLDER
"""

from __future__ import annotations

import sys

import mlflow.pyfunc
import pandas

from bylaw import Columns, Policy

COLUMNS = Columns(["p_approve", "p_deny"], classes=["approve", "deny"], groups={"race": "race"}, id="id")


class PolicyModel(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.policy = Policy.load(context.artifacts["policy"])

    def predict(self, context, model_input: pandas.DataFrame, params=None) -> pandas.DataFrame:
        rows = COLUMNS.evidence(model_input)
        decisions = self.policy.decide(rows, ids=model_input[COLUMNS.id])
        return pandas.DataFrame({"id": model_input[COLUMNS.id], "decision": decisions})


def main(policy: str, rows: str, folder: str) -> None:
    mlflow.pyfunc.save_model(
        folder,
        python_model=PolicyModel(),
        artifacts={"policy": policy},
        pip_requirements=["bylaw", "pandas"],
        metadata={"policy": Policy.load(policy).digest},
    )
    loaded = mlflow.pyfunc.load_model(folder)
    sys.stdout.write(loaded.predict(pandas.read_parquet(rows)).to_csv(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
