"""Lets a chat model say made questions in other words.

A wording is taken only if it passes checks that need no model: it is one line of a fitting length and has
every name and number of the question as the graph writes it. Whether it means the same is not checked.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kbqa.chat import ChatClient, ChatParams, Conversation, Message
from kbqa.errors import ChatError
from kbqa.kg.ranking.encoders import words

logger = logging.getLogger(__name__)

_TASK = (
    "Somebody asks a question about a knowledge graph, but a program has worded it, and clumsily. Write it "
    "as a person would type it. You get a JSON object: the question, the names in it, and what its relations "
    "are called in the graph, which tells what is meant. Ask for exactly the same thing: add no condition, "
    "leave none out, answer nothing. Copy every name and every number letter by letter. Reply with the "
    "question alone, on one line, without quotation marks."
)
_AT_ONCE = 8  # requests
_MOST_FAILURES = 16  # in a row, after which a model is asked no more
_TEMPERATURE = 0.7
_LONGEST_TOKENS = 200
_SHORTEST = 3  # words of a question
_TIMES, _MORE = 2, 10  # a wording has at most twice the words of the question, and ten more
_NUMBER = re.compile(r"\d(?:[\d.,:-]*\d)?")
_QUOTES = "\"'“”‘’`"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to be said in other words.

    Attributes:
        names: of entities, which it mentions.
        relations: in words.
    """

    text: str
    names: tuple[str, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reworded:
    """Other words for a question, or the reason why there are none."""

    text: str = ""
    refused: str = ""


class Paraphraser:
    """Asks a chat model, several questions at a time; a model that fails stops nothing.

    Args:
        seed: for models that support it.
    """

    def __init__(self, client: ChatClient, seed: int = 0) -> None:
        self._client, self._seed = client, seed
        self._failures, self._error = 0, ""
        self._stopped = threading.Event()

    @property
    def model(self) -> str:
        return self._client.model.name

    @property
    def error(self) -> str:
        """What the last request that failed said; "" if none failed."""
        return self._error

    def reword(self, asked: Sequence[Asked]) -> Iterator[Reworded]:
        """Other words for each question, in order.

        After several failures in a row, the remaining questions are refused without being sent.
        """
        with ThreadPoolExecutor(_AT_ONCE, "paraphrase") as pool:
            try:
                yield from pool.map(self._one, range(len(asked)), asked)
            finally:
                self._stopped.set()  # abandons what is under way if nobody waits for it any more

    def _one(self, number: int, asked: Asked) -> Reworded:
        if self._failures >= _MOST_FAILURES:
            return Reworded(refused="not sent, because the model failed")
        said = {"question": asked.text, "names": asked.names, "relations": asked.relations}
        messages = (Message("system", _TASK), Message("user", json.dumps(said, ensure_ascii=False)))
        params = ChatParams(_LONGEST_TOKENS, _TEMPERATURE, seed=self._seed + number)
        try:
            [reply] = self._client.reply([Conversation(messages)], params, cancelled=self._stopped)
        except ChatError as error:
            self._failures += 1
            self._error = str(error)
            logger.warning("the chat model does not reword a question", extra={"error": str(error)})
            return Reworded(refused="the model gave no reply")
        self._failures = 0
        if reply is None or reply.cut:
            return Reworded(refused="the model gave no reply")
        text = reply.text.strip().strip(_QUOTES).strip()
        refused = objection(asked, text)
        return Reworded("" if refused else text, refused)


def objection(asked: Asked, text: str) -> str:
    """Why a text cannot stand for a question; "" if nothing is wrong with it."""
    if len(text.splitlines()) != 1:
        return "not one line"
    count = len(words(text).split())
    if not _SHORTEST <= count <= _TIMES * len(words(asked.text).split()) + _MORE:
        return "too short or too long"
    if not all(_mentions(text, name) for name in asked.names):
        return "a name is missing"
    numbers = _NUMBER.findall(asked.text)
    if sorted(numbers) != sorted(_NUMBER.findall(text)):
        return "other numbers"
    return ""


def _mentions(text: str, name: str) -> bool:
    """Whether a text has a name, letter by letter, and not as a part of a longer word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
