"""What every room may use: types, validation of scalars, files."""
