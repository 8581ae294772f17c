"""The language of demands: rates, rules, families, problems. No rows, no data."""
