"""Rows that are not in memory, in large files, clusters or databases, with one module per engine."""
