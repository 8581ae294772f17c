"""The compiled problem: its linear form, the smoothed dual, rates of rows, and solutions of solvers."""
