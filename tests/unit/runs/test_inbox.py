"""The first answer wins, and nothing is ever half written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbqa.errors import MessageError
from kbqa.runs.inbox import Inbox
from kbqa.wire import encode
from tests.unit.runs.exchange import make_reply


def test_the_first_answer_wins(inbox: Inbox) -> None:
    first = make_reply("t1", "a")
    assert inbox.accept(first)
    assert not inbox.accept(make_reply("t1", "b"))
    assert inbox.read("t1") == first
    assert inbox.ids() == ["t1"]


def test_an_answer_is_kept_as_it_came(inbox: Inbox, tmp_path: Path) -> None:
    reply = make_reply("t1", "a" * 5000)
    encoded = encode(reply)
    assert not encoded.startswith("{")  # it is compressed
    inbox.accept(reply, encoded)
    assert (tmp_path / "inbox" / "t1.json").read_text() == encoded
    assert inbox.read("t1") == reply


def test_an_answer_that_an_earlier_release_has_written_is_read(inbox: Inbox, tmp_path: Path) -> None:
    reply = make_reply("t1", "a" * 5000)
    (tmp_path / "inbox" / "t1.json").write_text(reply.model_dump_json())
    assert inbox.read("t1") == reply


def test_discarded_answers_are_gone(inbox: Inbox) -> None:
    inbox.accept(make_reply("t1", "a"))
    inbox.accept(make_reply("t2", "a"))
    inbox.discard(["t1", "t9"])
    assert inbox.ids() == ["t2"]
    assert "t2" in inbox
    assert "t1" not in inbox


def test_what_was_being_written_is_no_answer(inbox: Inbox, tmp_path: Path) -> None:
    left = tmp_path / "inbox" / ".aside-0123"
    left.write_text("{")
    assert inbox.ids() == []
    inbox.sweep()
    assert not left.exists()


def test_a_damaged_file_is_an_error(inbox: Inbox, tmp_path: Path) -> None:
    (tmp_path / "inbox" / "t1.json").write_text("{")
    with pytest.raises(MessageError):
        inbox.read("t1")
    with pytest.raises(MessageError):
        inbox.read("t2")


@pytest.mark.parametrize("request_id", ["../run", "a/b", "", ".."])
def test_ids_never_form_paths_unchecked(inbox: Inbox, request_id: str) -> None:
    with pytest.raises(MessageError, match="is not an id"):
        inbox.read(request_id)
