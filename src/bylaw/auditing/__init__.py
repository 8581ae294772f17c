"""What held-out rows prove about a policy. It needs no solver."""
