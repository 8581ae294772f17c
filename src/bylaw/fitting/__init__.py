"""From a problem and rows to policies."""
