"""How often Python looks for garbage that refers to itself.

A gateway holds some hundred thousand objects, a third of a thousand for each question under way, and
none of them refer to each other in circles: they go when they are no longer needed. A look at all of
them finds nothing and stops every stream for a tenth of a second. By default that happens every few
seconds under load; by these numbers it happens once in a million objects.
"""

from __future__ import annotations

import gc

_YOUNG = 2000  # objects beyond those freed: a look at those alone takes 2 or 3 ms
_LOOKS = 500  # at the young before one at the older


def look_seldom() -> None:
    """For the whole process, once everything is imported: what is there by then is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _LOOKS)
