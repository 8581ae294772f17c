"""The inner loops of the stochastic optimizers, compiled by numba on first use and cached.

Only this file imports numba. Shapes: features (n_rows, n_features); point, average and anchor (n_rules,).
`problem` is a tuple: base (n_features, n_actions); couplings as a CSR matrix (indptr, indices, data) over the
flattened features x actions; bounds (n_rules,); beta; whether decisions are sets.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def row_gradient(point, row, weight, problem, distribution, scores, out):
    """Write weight * (b - B phi pi'), the gradient of lse_beta(-L - C' lambda) on one row, to `out`.

    `distribution` (n_actions,) and `scores` (n_features * n_actions,) are work arrays.
    """
    base, indptr, indices, data, bounds, beta, sets = problem
    n_features, n_actions = base.shape
    # Add up the costs of actions, for each feature: the loss plus the priced costs of the rules.
    for k in range(n_features):
        for a in range(n_actions):
            scores[k * n_actions + a] = base[k, a]
    for j in range(len(bounds)):
        if point[j] != 0.0:
            for i in range(indptr[j], indptr[j + 1]):
                scores[indices[i]] += point[j] * data[i]
    # Compute the probabilities of the actions, by a sigmoid for sets and a softmax otherwise.
    distribution[:] = 0.0
    for k in range(n_features):
        if row[k] != 0.0:
            for a in range(n_actions):
                distribution[a] -= beta * row[k] * scores[k * n_actions + a]
    if sets:
        for a in range(n_actions):
            distribution[a] = 1.0 / (1.0 + np.exp(-distribution[a]))
    else:
        peak = distribution.max()
        total = 0.0
        for a in range(n_actions):
            distribution[a] = np.exp(distribution[a] - peak)
            total += distribution[a]
        for a in range(n_actions):
            distribution[a] /= total
    # Subtract the row's costs of the rules from their bounds.
    for j in range(len(bounds)):
        slope = bounds[j]
        for i in range(indptr[j], indptr[j + 1]):
            slope -= data[i] * row[indices[i] // n_actions] * distribution[indices[i] % n_actions]
        out[j] = weight * slope


@njit(cache=True)
def accelerate(features, weights, problem, taken, smoothness, mu, pull, anchor, point, average):
    """Take steps of AC-SA on F(lambda) + sum_i mu_i/2 |lambda - c_i|^2, one row per step.

    The first step has the number taken + 1; pull = sum_i mu_i and anchor = sum_i mu_i c_i. `point` and
    `average` are changed in place.
    """
    n_rules, base = len(point), problem[0]
    middle, slope = np.empty(n_rules), np.empty(n_rules)
    distribution, scores = np.empty(base.shape[1]), np.empty(base.size)
    for r in range(len(features)):
        # Compute the weights of this step.
        t = taken + r + 1.0
        alpha = 2.0 / (t + 1.0)
        gamma = 4.0 * smoothness / (t * (t + 1.0))
        rest = 1.0 - alpha
        share = gamma + (1.0 - alpha * alpha) * mu
        of_average = rest * (mu + gamma) / share
        of_point = alpha * (rest * mu + gamma) / share
        # Take the gradient between the average and the point.
        for j in range(n_rules):
            middle[j] = of_average * average[j] + of_point * point[j]
        row_gradient(middle, features[r], weights[r], problem, distribution, scores, slope)
        # Move the point, project it on lambda >= 0, and update the average.
        keep = (rest * mu + gamma) / (mu + gamma)
        lean = alpha * mu / (mu + gamma)
        step = alpha / (mu + gamma)
        for j in range(n_rules):
            moved = keep * point[j] + lean * middle[j] - step * (slope[j] + pull * middle[j] - anchor[j])
            point[j] = max(moved, 0.0)
            average[j] = alpha * point[j] + rest * average[j]


@njit(cache=True)
def descend(features, weights, problem, taken, size, point, average):
    """Take steps of projected SGD with step sizes size / sqrt(t), one row per step.

    `average` is the mean of all points so far. It and `point` are changed in place.
    """
    n_rules, base = len(point), problem[0]
    slope = np.empty(n_rules)
    distribution, scores = np.empty(base.shape[1]), np.empty(base.size)
    for r in range(len(features)):
        t = taken + r + 1.0
        row_gradient(point, features[r], weights[r], problem, distribution, scores, slope)
        step = size / np.sqrt(t)
        for j in range(n_rules):
            point[j] = max(point[j] - step * slope[j], 0.0)
            average[j] += (point[j] - average[j]) / t
