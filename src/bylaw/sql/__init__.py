"""Decisions as SQL: the statement, its steps, and how each database spells them."""
