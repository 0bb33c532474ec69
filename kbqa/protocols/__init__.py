"""Agent dialects, one module for each, behind one port."""

from __future__ import annotations

from kbqa.protocols.base import AgentProtocol, Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.protocols.form_chooser import FormChoosingProtocol
from kbqa.protocols.interactive_parsing import InteractiveParsing
from kbqa.protocols.kbqa_r1 import KbqaR1
from kbqa.protocols.kg_r1 import KgR1
from kbqa.protocols.knowcoder_a1 import KnowCoderA1
from kbqa.protocols.registry import PROTOCOLS
from kbqa.protocols.sparql_refinement import SparqlRefinement

__all__ = [
    "PROTOCOLS",
    "AgentProtocol",
    "PredictedAnswer",
    "ChoosingProtocol",
    "Dialogue",
    "FormChoosingProtocol",
    "InteractiveParsing",
    "KbqaR1",
    "KgR1",
    "KnowCoderA1",
    "Opening",
    "Reply",
    "SparqlRefinement",
]
