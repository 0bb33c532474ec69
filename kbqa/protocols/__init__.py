"""Agent dialects: one module for each, behind one port."""

from __future__ import annotations

from typing import Any

from kbqa.protocols.base import AgentProtocol, Answer, Dialogue, Reply
from kbqa.protocols.kg_r1 import KgR1

__all__ = ["AgentProtocol", "Answer", "Dialogue", "PROTOCOLS", "Reply", "make_protocol"]

PROTOCOLS = {KgR1.name: KgR1}


def make_protocol(name: str, options: dict[str, Any]) -> AgentProtocol:
    """The protocol that a recipe names, with its options.

    Raises:
        KeyError: there is no protocol of that name.
        TypeError: an option is not one of the protocol's.
    """
    return PROTOCOLS[name](**options)
