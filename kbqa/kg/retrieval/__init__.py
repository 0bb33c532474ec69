"""The retrieval actions, a module each, and `ACTIONS`, in which all of them are."""

# ruff: noqa: F401, I001
# Imported to be registered, in the order in which agents are shown them.

from __future__ import annotations

from kbqa.kg.retrieval import (
    one_hop,
    execute_sparql,
    find_relation,
    type_search,
    graph_patterns,
    node_relations,
    distance,
    describe,
    follow_path,
    link_entities,
)
from kbqa.kg.specs import ACTIONS

__all__ = ["ACTIONS"]
