"""Rows: evidence and its groups, observed rows, tables in files, and the roles of their columns."""
