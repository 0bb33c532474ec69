"""A judge behind any OpenAI-compatible chat endpoint."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kbqa.chat import ChatClient, ChatModel, ChatParams, Conversation, Message
from kbqa.errors import ChatError, ConfigurationError, JudgeUnavailableError
from kbqa.gold import Names
from kbqa.judges.base import JUDGES, NAMELESS, Verdict

_CACHED_VERDICTS = 65_536
_ATTEMPTS = 3
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)

_INSTRUCTION = """\
You compare an answer to a question with the gold answers. Wording, spelling variants, units and formats of \
dates and numbers do not matter; meaning does. "names" says what else some of them are called, such as the \
label of an id. Use nothing but what is given. Reply with one JSON object: \
{"found": [a 1 or 0 for each gold answer, in order: does the answer contain it?], \
"correct": true if the answer says what the gold answers say and nothing that contradicts them, \
"justification": "one sentence"}"""


@JUDGES.register("chat")
@dataclass(frozen=True, slots=True)
class ChatJudge:
    """Asks a model at temperature 0; equal cases are asked only once per process.

    Attributes:
        base_url: of the API, such as https://api.openai.com/v1 or a vLLM server's.
        api_key_variable: environment variable that holds the key, if one is needed.
        timeout_s: seconds for each of three attempts.
    """

    model: str
    base_url: str
    api_key_variable: str = "OPENAI_API_KEY"
    timeout_s: float = 30.0

    def verdict(
        self, question: str, gold: Sequence[str], answers: Sequence[str], names: Names = NAMELESS
    ) -> Verdict:
        called = tuple((name, *others) for name, others in names.items())
        return _verdict(self, question, tuple(gold), tuple(answers), called)


@lru_cache(_CACHED_VERDICTS)
def _verdict(
    judge: ChatJudge,
    question: str,
    gold: tuple[str, ...],
    answers: tuple[str, ...],
    names: tuple[tuple[str, ...], ...],
) -> Verdict:
    case: dict[str, Any] = {"question": question, "gold answers": gold, "answer": answers}
    if names:
        case["names"] = {name: others for name, *others in names}
    asked = Conversation(
        (Message("system", _INSTRUCTION), Message("user", json.dumps(case, ensure_ascii=False)))
    )
    key = os.environ.get(judge.api_key_variable)
    model = ChatModel(judge.model, judge.base_url, key, judge.timeout_s, _ATTEMPTS)
    reason = ""
    try:
        with ChatClient(model) as client:
            for _ in range(_ATTEMPTS):
                [reply] = client.reply([asked], ChatParams())
                assert reply is not None, "without a deadline nothing is abandoned"
                try:
                    return _read(reply.text, len(gold))
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    reason = f"its reply is not a verdict ({str(error) or type(error).__name__})"
    except (ChatError, ConfigurationError) as error:
        reason = str(error)
    raise JudgeUnavailableError(f"the judge {judge.model} at {judge.base_url} gave no verdict: {reason}")


def _read(text: str, num_gold: int) -> Verdict:
    written = _OBJECT.search(text)
    if written is None:
        raise ValueError(f"no JSON object in its reply: {text[:200]!r}")
    reply = json.loads(written.group())
    found = tuple(bool(one) for one in reply["found"])
    if len(found) != num_gold or not isinstance(reply["correct"], bool):
        raise ValueError(f"not the requested JSON object: {text[:200]!r}")
    return Verdict(reply["correct"], str(reply.get("justification", "")), found)
