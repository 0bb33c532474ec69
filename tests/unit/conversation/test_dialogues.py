"""Generated dialogues are understood: the complete question is the one that was meant."""

from __future__ import annotations

import random
from collections import Counter

from kbqa.conversation import Acquaintances, Exchange, Name, Thing, understand
from kbqa.datasets.world.dialogues import FOLLOW_UPS, DialogueTurn, generate_dialogues
from kbqa.datasets.world.facts import Facts, generate_facts
from kbqa.datasets.world.vocabulary import WORLD
from kbqa.errors import ConversationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools

COUNT = 45


def exchange(facts: Facts, turn: DialogueTurn, topic: tuple[int, int] | None) -> Exchange:
    """What a gateway would keep of a turn that was answered rightly."""
    name = facts.names[turn.topic]
    start = turn.meant.index(name)
    return Exchange(
        question=turn.meant,
        names=(Name(id=turn.topic, label=name, start=start, end=start + len(name)),),
        answers=tuple(Thing(id=one, label=facts.names[one]) for one in turn.answers[:6]),
        topic=topic,
    )


def plain(question: str) -> str:
    return question.replace(" 's", "'s").rstrip("? ")


def test_nine_in_ten_follow_ups_are_understood(tmp_path) -> None:
    facts = generate_facts(WORLD, random.Random("dialogues/7"))
    file = tmp_path / "world.nt"
    file.write_text("".join(f"{line}\n" for line in facts.lines()), encoding="utf-8")
    catalog = GraphCatalog(tmp_path)
    catalog.load("world", file)
    graph = Acquaintances(LocalGraphTools(catalog), "world")
    asked, right, wrong = Counter[str](), Counter[str](), list[tuple[str, str, str]]()
    for dialogue in generate_dialogues(facts, 7, COUNT):
        told: list[Exchange] = []
        for turn in dialogue:
            try:
                question = understand(turn.said, told, graph).question
            except ConversationError as error:
                question = str(error)
            asked[turn.sort] += 1
            right[turn.sort] += plain(question) == plain(turn.meant)
            if plain(question) != plain(turn.meant):
                wrong.append((turn.said, question, turn.meant))
            told.append(exchange(facts, turn, None))
    catalog.close()
    assert sum(right[sort] for sort in FOLLOW_UPS) >= 0.9 * sum(asked[sort] for sort in FOLLOW_UPS), wrong
    assert right["opening"] == asked["opening"] == COUNT
