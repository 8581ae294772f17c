"""The commands, in one module per topic."""
