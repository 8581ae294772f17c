"""A policy as an HTTP service: it takes scores and groups and returns a decision. The same id gets the same
decision from all workers.

POLICY=policy.json uvicorn fastapi_app:app
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from bylaw import BylawError, Evidence, Policy

app = FastAPI(title="Decisions under rules")


class Case(BaseModel):
    id: str
    scores: dict[str, float]  # the model's probability of each class
    groups: dict[str, str] = {}


@cache
def load_policy() -> Policy:
    return Policy.load(os.environ["POLICY"])


@app.post("/decide")
def decide(cases: list[Case]) -> list[dict[str, Any]]:
    policy = load_policy()
    try:
        rows = read_rows(cases, policy)
        chances = policy.probabilities(rows)
        decisions = policy.decide(rows, ids=[case.id for case in cases], key=os.environ.get("KEY"))
    except (BylawError, KeyError) as refused:  # invalid probabilities, an unknown group, ...
        raise HTTPException(422, f"{type(refused).__name__}: {refused}") from None
    return [
        {
            "id": case.id,
            "decision": str(decision),
            "chances": dict(zip(map(str, policy.actions), row.tolist(), strict=True)),
            "policy": policy.digest,
        }
        for case, decision, row in zip(cases, decisions, chances, strict=True)
    ]


def read_rows(cases: list[Case], policy: Policy) -> Evidence:
    classes = policy.action_space.classes
    scores = np.array([[case.scores[str(name)] for name in classes] for case in cases])
    groups = {name: [case.groups[name] for case in cases] for name in policy.problem.attributes}
    return Evidence(scores, classes=classes, groups=groups)
