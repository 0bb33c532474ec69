"""The dialects that a recipe may name."""

from __future__ import annotations

from kbqa.parts import Parts
from kbqa.protocols.base import AgentProtocol

PROTOCOLS: Parts[AgentProtocol] = Parts("protocols")
