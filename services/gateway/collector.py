"""How often Python's garbage collector looks for reference cycles.

A gateway holds some hundred thousand objects, about 330 for each question in progress. They contain no
reference cycles, so they are freed as soon as they are no longer needed. A full collection finds nothing
and stops every stream for a tenth of a second. By default it happens every few seconds under load; with
these thresholds it happens once per million objects.
"""

from __future__ import annotations

import gc

_YOUNG = 2000  # new objects that are not freed before a young collection, which takes 2 or 3 ms
_LOOKS = 500  # young collections before a collection of older objects


def look_seldom() -> None:
    """Set the thresholds for the process, after all imports: objects that exist then are never examined."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _LOOKS)
