"""Functions that fit policies: solve, frontier, sensitivity, diagnose, refit and streams."""
