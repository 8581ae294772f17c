"""Watching rules in production: evidence that grows with the rows, and may be looked at every day."""
