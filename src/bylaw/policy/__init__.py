"""Policies: decisions, explanations, sampling and files. This package needs no solver."""
