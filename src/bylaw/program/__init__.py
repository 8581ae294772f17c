"""Demands on rows, compiled: the linear form, its smoothed dual, rates per row, solutions."""
