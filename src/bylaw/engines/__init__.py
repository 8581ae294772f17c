"""Rows that live elsewhere: files larger than memory, clusters, databases. One file per engine."""
