"""A graph of two nodes and many numbers, and an action on it."""

from __future__ import annotations

from kbqa.kg.actions import GET_TAIL_ENTITIES, Action

EX = "http://ex.org/"


TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:big :starred :hanks ; rdfs:label "Big" . :hanks rdfs:label "Tom Hanks" .
:numbers :has {", ".join(map(str, range(300)))} .
"""


STARRED = Action(GET_TAIL_ENTITIES, {"entity": "Big", "relation": f"{EX}starred"})
