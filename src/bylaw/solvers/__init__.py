"""Solvers of the dual: each turns a `Dual` into a `Solution`."""
