"""`python -m bylaw`: the command line."""

from __future__ import annotations

from bylaw.cli import main

if __name__ == "__main__":
    main()
