"""What decides. It needs no solver."""
