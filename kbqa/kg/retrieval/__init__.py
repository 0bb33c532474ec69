"""The retrieval actions, one module each, and `ACTIONS`, their registry."""

# ruff: noqa: F401, I001
# Importing a module registers its actions; agents see them in this order.

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
    resolve_names,
    labels,
    follow_path,
    expand,
    link_entities,
    complete_name,
)
from kbqa.kg.specs import ACTIONS

__all__ = ["ACTIONS"]
