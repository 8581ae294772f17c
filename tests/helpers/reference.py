"""Independent answers: the paper's formulas as plain arrays, and the exact linear program.

Nothing here uses bylaw's compiler: losses and rules are written out as (n_rows, n_actions)
arrays, straight from the paper, so that a mistake in the compiled form cannot hide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


@dataclass
class Reference:
    """minimise mean(loss * pi) + loss_constant under mean(cost * pi) <= bound, for every rule."""

    loss: np.ndarray  # (n, A)
    rules: list[tuple[np.ndarray, float]]  # ((n, A), bound)
    sets: bool = False
    loss_constant: float = 0.0

    def optimum(self, weights=None) -> float | None:
        """The least cost, by HiGHS; None if the rules conflict."""
        n, n_actions = self.loss.shape
        share = np.full(n, 1 / n) if weights is None else weights / weights.sum()
        lp = linprog(
            (self.loss * share[:, None]).ravel(),
            A_ub=np.array([(cost * share[:, None]).ravel() for cost, _ in self.rules])
            if self.rules
            else None,
            b_ub=np.array([bound for _, bound in self.rules]) if self.rules else None,
            A_eq=None if self.sets else sparse.kron(sparse.eye(n), np.ones((1, n_actions))),
            b_eq=None if self.sets else np.ones(n),
            bounds=(0, 1),
            method="highs",
        )
        assert lp.status in (0, 2), lp.message
        return lp.fun + self.loss_constant if lp.status == 0 else None

    def cost(self, distribution, weights=None) -> float:
        return float(np.average((self.loss * distribution).sum(axis=1), weights=weights)) + self.loss_constant

    def excesses(self, distribution, weights=None) -> np.ndarray:
        """How far each rule is from holding: positive means violated."""
        return np.array(
            [
                np.average((cost * distribution).sum(axis=1), weights=weights) - bound
                for cost, bound in self.rules
            ]
        )


def on(action, column, n_actions):
    """`column` paid when `action` is taken: (n, A)."""
    cost = np.zeros((len(column), n_actions))
    cost[:, action] = column
    return cost


def error_loss(P, n_actions):
    """l(x, a) = 1 - p_a(x), and nothing for a rejection."""
    loss = np.zeros((len(P), n_actions))
    loss[:, : P.shape[1]] = 1 - P
    return loss


def rejection(P):
    return on(P.shape[1], np.ones(len(P)), P.shape[1] + 1)


def parity(T, K, tol, n_actions):
    """c^{+-}_{s,y} = +-(tau_s / P(s) - 1) 1{a = y} - eps_s."""
    tols = np.broadcast_to(tol, T.shape[1])
    return [
        (sign * on(y, T[:, s] / T[:, s].mean() - 1, n_actions), tols[s])
        for y in range(K)
        for s in range(T.shape[1])
        for sign in (1, -1)
    ]


def odds(J, P, tol, n_actions):
    """c^{+-}_{y,s,t} = +-(P(s,t|x)/P(s,t) - p_t/P(t)) 1{a = y} - eps."""
    S, K = J.shape[1:]
    rules = []
    for t in range(K):
        for y in range(K):
            for s in range(S):
                column = J[:, s, t] / J[:, s, t].mean() - P[:, t] / P[:, t].mean()
                rules += [(sign * on(y, column, n_actions), tol) for sign in (1, -1)]
    return rules


def churn(old, n_actions):
    """1{a != g(x)}; a rejection differs from every label."""
    return 1.0 - np.eye(n_actions)[old]


def one_hot(codes, S):
    return np.eye(S)[codes]


def rounding(n_terms, total):
    """Return by how much two sums of the same numbers may differ: `total` is the sum of their sizes."""
    return n_terms * np.finfo(float).eps * total


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
