"""Rules tried out in a browser: what each change of a rule does to costs, groups and decisions.

>>> from bylaw.studio import studio
"""

from bylaw.studio.notebook import Studio, studio

__all__ = ["Studio", "studio"]
