"""SQL of policies, which `bylaw.scoring` writes because policies and engines need it, too."""

from bylaw.scoring import to_sql

__all__ = ["to_sql"]
