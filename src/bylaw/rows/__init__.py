"""Tables as validated evidence: columns and their roles, groups, observed rows, and files."""
