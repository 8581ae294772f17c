"""What is demanded: rates, rules, families, problems. No rows, no data."""
