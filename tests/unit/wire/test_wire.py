"""Messages survive the queue exactly, and nothing else passes for one."""

from __future__ import annotations

import base64
import json
import random
import zlib
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.errors import MessageError
from kbqa.packing import pack
from kbqa.trajectory import (
    ExecutedAction,
    Group,
    Hop,
    Question,
    RewardedTrajectory,
    Status,
    Trajectory,
    Turn,
)
from kbqa.wire import FailureReason, Purpose, RolloutFailure, RolloutReply, RolloutRequest, decode, encode
from kbqa.wire import encoding as encoding_module

QUESTION = Question("q1", "Who?", ("Ann",), ("Bob",), "world", path=(Hop("knows"), Hop("knows", True)))


def request(**changes) -> RolloutRequest:
    values = {
        "run": "run-1",
        "request_id": "t000001",
        "purpose": Purpose.TRAIN,
        "question": QUESTION,
        "recipe_digest": "0" * 64,
        "min_policy_version": 3,
        "n": 8,
        "temperature": 1.0,
        "seed": 7,
        "sent_at": 1.5,
        "deadline_s": 20.0,
    }
    return RolloutRequest(**{**values, **changes})


def reply(logprobs: tuple[float, ...] = (-0.1, -1 / 3), text: str = "x") -> RolloutReply:
    turn = Turn(
        1,
        1 + len(logprobs),
        logprobs,
        text,
        Status.OK,
        actions=(
            ExecutedAction(
                "get_tail_entities",
                {"entity": "Bob"},
                items=("a",),
                labels=("A",),
                details={"via": [["Bob"]]},
            ),
        ),
        policy_version="v000003-00000000",
    )
    trajectory = Trajectory(
        tuple(range(1 + len(logprobs))), (turn,), Status.ANSWERED, ("Ann",), (("a", "b"),)
    )
    member = RewardedTrajectory(trajectory, (0.5,), 1 / 7, {"f1": 2 / 3})
    return RolloutReply(
        run="run-1",
        request_id="t000001",
        purpose=Purpose.TRAIN,
        group=Group("t000001", QUESTION, (member, member)),
        worker="w1",
    )


def test_a_request_round_trips() -> None:
    assert decode(RolloutRequest, encode(request())) == request()
    assert request().expires_at == 21.5


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_a_reply_round_trips_exactly(logprobs: list[float], text: str) -> None:
    message = reply(tuple(logprobs), text)
    assert decode(RolloutReply, encode(message)) == message


def test_what_evidence_is_made_of_stays_where_the_episode_was_played() -> None:
    message = reply()
    assert message.group is not None
    (action,) = message.group.members[0].trajectory.actions
    assert action.details == {"via": [["Bob"]]}
    received = decode(RolloutReply, encode(message))
    assert received.group is not None
    assert [told.details for told in received.group.members[0].trajectory.actions] == [{}]


def test_a_large_message_is_compressed_and_round_trips() -> None:
    message = reply(tuple(-i / 997 for i in range(5000)))
    encoded = encode(message)
    assert not encoded.startswith("{")
    assert len(encoded) < len(message.model_dump_json())
    assert decode(RolloutReply, encoded) == message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"run": "../etc"}, "run"),
        ({"run": "Run"}, "run"),
        ({"request_id": "a/b"}, "request_id"),
        ({"request_id": ".."}, "request_id"),
        ({"n": 0}, "n"),
        ({"n": "8"}, "n"),
        ({"temperature": float("nan")}, "temperature"),
        ({"recipe_digest": "xyz"}, "recipe_digest"),
        ({"schema_version": 2}, "schema_version"),
        ({"surplus": 1}, "surplus"),
        ({"question": {"id": "q"}}, "question.text"),
        ({"deadline_s": 0}, "deadline_s"),
    ],
)
def test_what_does_not_fit_names_its_field(change: dict[str, object], field: str) -> None:
    values = {**json.loads(encode(request())), **change}
    with pytest.raises(MessageError, match=rf"RolloutRequest: .*{field}"):
        decode(RolloutRequest, json.dumps(values))


def test_an_unknown_field_deep_inside_is_refused() -> None:
    values = json.loads(reply().model_dump_json())
    values["group"]["members"][0]["trajectory"]["turns"][0]["surplus"] = 1
    with pytest.raises(MessageError, match=r"turns\.0\.surplus"):
        decode(RolloutReply, json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda m: m["trajectory"]["turns"][0].update(logprobs=[-0.1]), "logprobs: 1 for 2 tokens"),
        (lambda m: m["trajectory"]["turns"][0].update(logprobs="f4:AAA="), "turns.0.logprobs: .*2 bytes"),
        (lambda m: m["trajectory"]["turns"][0].update(logprobs=pack((nan, 0.0))), "logprobs.0: .*finite"),
        (lambda m: m["trajectory"]["turns"][0].update(end=9), "tokens 1 to 9 of 3"),
        (lambda m: m["trajectory"]["turns"][0].update(start=0, logprobs=[0, 0, 0]), "tokens 0 to 3"),
        (lambda m: m.update(turn_rewards=[]), "turn_rewards: 0 for 1 turns"),
        (lambda m: m["trajectory"]["token_ids"].__setitem__(1, -5), "token_ids.1: -5 is no token"),
        (lambda m: m["trajectory"]["token_ids"].__setitem__(2, 10**12), "token_ids.2: 1000000000000 is no"),
        (
            lambda m: (
                m.update(turn_rewards=[0.0, 0.0]),
                m["trajectory"]["turns"].append(m["trajectory"]["turns"][0]),
            ),
            "turns overlap",
        ),
    ],
)
def test_a_trajectory_that_contradicts_itself_is_refused(damage, complaint: str) -> None:
    values = json.loads(reply().model_dump_json())
    damage(values["group"]["members"][1])
    with pytest.raises(MessageError, match=complaint):
        decode(RolloutReply, json.dumps(values))


def test_a_reply_has_either_group_or_failure() -> None:
    failure = RolloutFailure(reason=FailureReason.GRAPH_UNAVAILABLE, detail="down")
    fields = {"run": "r", "request_id": "t1", "purpose": Purpose.TRAIN, "worker": "w"}
    message = RolloutReply(**fields, failure=failure)
    assert decode(RolloutReply, encode(message)) == message
    values = json.loads(encode(message))
    for both in ({**values, "failure": None}, {**json.loads(encode(reply())), "failure": values["failure"]}):
        with pytest.raises(MessageError, match="exactly one of group, tree and failure"):
            decode(RolloutReply, json.dumps(both))


def test_an_empty_group_is_refused() -> None:
    values = json.loads(encode(reply()))
    values["group"]["members"] = []
    with pytest.raises(MessageError, match="members is empty"):
        decode(RolloutReply, json.dumps(values))


def test_the_group_answers_the_request_that_it_names() -> None:
    values = {**json.loads(encode(reply())), "request_id": "t000002"}
    with pytest.raises(MessageError, match="request_id"):
        decode(RolloutReply, json.dumps(values))


@pytest.mark.parametrize("text", ["", "hello", "AAAA", None, 7, b"{}", "{", "[]", "{}"])
def test_rubbish_is_refused(text: object) -> None:
    with pytest.raises(MessageError):
        decode(RolloutRequest, text)


def test_a_message_that_was_cut_off_is_refused() -> None:
    whole = base64.b64decode(encode(reply(tuple(-i / 997 for i in range(5000)))))
    with pytest.raises(MessageError, match="cut off"):
        decode(RolloutReply, base64.b64encode(whole[: len(whole) // 2]).decode())


def test_size_is_bounded_before_and_after_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = base64.b64encode(zlib.compress(b"{" + b" " * 300_000)).decode()
    monkeypatch.setattr(encoding_module, "MAX_MESSAGE_BYTES", 100_000)
    with pytest.raises(MessageError, match="larger than 100000"):
        decode(RolloutReply, bomb)
    with pytest.raises(MessageError, match="more than 100000"):
        encode(reply(tuple(-i / 997 for i in range(10_000))))


def test_a_message_that_no_sender_could_have_packed_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = base64.b64encode(random.Random(0).randbytes(120_000)).decode()
    monkeypatch.setattr(encoding_module, "MAX_MESSAGE_BYTES", 100_000)
    monkeypatch.setattr(encoding_module, "_inflate", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(MessageError, match="larger than 100000"):
        decode(RolloutReply, noise)


def test_half_a_surrogate_pair_is_refused_not_sent() -> None:
    with pytest.raises(MessageError):
        encode(reply(text="\ud800"))
