"""What several tests need: generated rows, references, servers, commands."""
