"""Forty questions about the generated world in each of the dialects: every citation holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kbqa.cold_start.demonstrations import demonstrate
from kbqa.datasets import load_dataset
from kbqa.environment import Budget
from kbqa.evidence import CitedQuery, Claims, confirmed
from kbqa.kg.actions import EXECUTE_SPARQL, Action
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import (
    AgentProtocol,
    InteractiveParsing,
    KbqaR1,
    KgR1,
    KnowCoderA1,
    SparqlRefinement,
)
from kbqa.protocols.references import referring
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Status
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

_CODEC = make_codec()
_EACH = 40  # questions of a dialect
_TURNS = 12
_BUDGET = Budget(_TURNS, max_tokens=60_000, max_turn_tokens=4000, max_observation_tokens=8000)
_DIALECTS: tuple[AgentProtocol, ...] = (
    KgR1("brief"),
    KgR1("brief", entities="references"),
    KbqaR1("brief"),
    KnowCoderA1("brief"),
    InteractiveParsing("brief"),
    SparqlRefinement("brief"),
)


@pytest.fixture(scope="module")
def world():
    """The triples, and questions with gold paths."""
    dataset = load_dataset("world", seed=1)
    return [tuple(line.split("\t")) for line in dataset.graph.lines()], dataset.splits.train


def graph(triples) -> LocalGraphTools:
    return LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples(triples)}))


@pytest.fixture(scope="module")
def tools(world):
    return graph(world[0])


def lessons(protocol: AgentProtocol, questions, tools) -> dict[str, list[str]]:
    """What a teacher says to each of the first questions that it can answer, by the question's text."""
    texts: dict[str, list[str]] = {}
    prompts: set[str] = set()  # by reference two questions may be the same
    for question in questions:
        demonstration = demonstrate(question, protocol, tools, _TURNS)
        if demonstration is None or question.text in texts:
            continue
        prompt, *said = ["".join(s.text for s in p.segments) for p in demonstration.passages]
        if prompt not in prompts:
            prompts.add(prompt)
            texts[question.text] = said[::2]
        if len(texts) == _EACH:
            return texts
    raise AssertionError(f"the teacher of {protocol.name} can answer {len(texts)} questions")


def reciting(texts: Mapping[str, list[str]]) -> ScriptedPolicy:
    """Says to each question, as the prompt has it, what its teacher did, turn by turn."""

    def script(prompt: str) -> str:
        question = max((text for text in texts if text in prompt), key=len)
        at = 0
        for said in (turns := texts[question]):
            found = prompt.find(said, at)
            if found < 0:
                return said
            at = found + len(said)
        return turns[-1]

    return ScriptedPolicy(_CODEC, script)


@pytest.mark.parametrize("protocol", _DIALECTS, ids=repr)
def test_every_citation_holds_and_is_needed(protocol, world, tools):
    triples, asked = world
    texts = lessons(protocol, asked, tools)
    questions = {question.text: question for question in asked if question.text in texts}
    by_reference = getattr(protocol, "entities", "") == "references"
    shown = {
        "".join(s.text for s in referring(text, questions[text].topic_entities))
        if by_reference
        else text: said
        for text, said in texts.items()
    }
    agent = Agent(reciting(shown), _CODEC, protocol, tools, _BUDGET)
    known, found = set(triples), 0
    removed = []
    for text, question in questions.items():
        (topic,) = question.topic_entities
        run, answers = answered(agent, question)
        assert (run.status, bool(answers)) == (Status.ANSWERED, True), text
        for answer in answers:
            assert answer.evidence, (text, answer)
            found += 1
            if isinstance(answer.evidence, CitedQuery):
                rows = rows_of(tools, answer.evidence.sparql)
                assert answer.evidence.rows
                for row in answer.evidence.rows:
                    assert row in rows
                    assert answer.id in {term["id"] for term in row.values()}
            else:
                chain = answer.evidence
                assert known.issuperset(chain), (text, chain)
                assert answer.id in reached(topic, chain)
                for triple in chain:
                    assert answer.id not in reached(topic, [other for other in chain if other != triple])
                removed.append((question, chain[-1], answer.id))
    assert found >= _EACH
    for question, triple, answer in removed[::20]:
        _require_it(question, triple, answer, triples, agent)


def answered(agent, question):
    """A run, and its answers with their evidence."""
    [run] = linear_rollout(agent, question, 1, 0.0)
    return run, confirmed([run], frozenset(question.topic_entities), Claims(agent.tools, "world"))


def _require_it(question, triple, answer, triples, agent):
    """Where the graph lacks the triple that led to an answer, the same run finds another way or none."""
    poorer = replace(agent, tools=graph(other for other in triples if other != triple))
    for other in answered(poorer, question)[1]:  # without its only triple a topic is none
        chain = [] if isinstance(other.evidence, CitedQuery) else other.evidence or []
        assert triple not in chain
        assert other.id != answer or answer in reached(question.topic_entities[0], chain)


def reached(topic, chain):
    """Everything that triples connect with the topic."""
    found = {topic}
    for _ in chain:
        for subject, _, object_ in chain:
            if subject in found or object_ in found:
                found |= {subject, object_}
    return found - {topic}


def rows_of(tools, sparql):
    (result,) = tools.execute("world", [Action(EXECUTE_SPARQL, {"query": sparql})])
    return list(result.items)
