"""The language of rules: rates, rules, families of rules and problems, all independent of data."""
