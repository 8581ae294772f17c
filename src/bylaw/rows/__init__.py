"""What is known of rows: arrays, groups, evidence, outcomes; tables and the roles of their columns."""
