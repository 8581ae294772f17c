"""What scores are worth: maps from a model's probabilities to calibrated ones."""
