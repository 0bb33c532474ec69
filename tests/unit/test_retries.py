"""Retries with growing pauses."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from kbqa.retries import retry


class Away(Exception):
    """What is worth another attempt."""


class Server:
    """Answers after so many failures, each an error of its own."""

    def __init__(self, failures, error=Away):
        self.failures, self.error, self.asked_at = failures, error, []

    def __call__(self):
        self.asked_at.append(time.monotonic())
        if len(self.asked_at) <= self.failures:
            raise self.error(len(self.asked_at))
        return "here"


def patiently(server, patience_s=60.0):
    return retry(server, on=Away, patience_s=patience_s, first_pause_s=0.01, longest_pause_s=0.04)


def test_it_is_asked_until_it_answers_with_growing_pauses():
    server = Server(failures=6)
    assert patiently(server) == "here"
    pauses = [later - earlier for earlier, later in zip(server.asked_at, server.asked_at[1:], strict=False)]
    assert len(pauses) == 6
    assert min(pauses) >= 0.005


def test_the_last_error_is_raised_once_no_attempt_would_begin_in_time():
    server = Server(failures=10_000)
    with pytest.raises(Away) as caught:
        patiently(server, patience_s=0.3)
    assert len(server.asked_at) < 60
    assert caught.value.args == (len(server.asked_at),)


def test_without_patience_there_is_one_attempt():
    server = Server(failures=1)
    with pytest.raises(Away):
        patiently(server, patience_s=0)
    assert len(server.asked_at) == 1


def test_other_errors_are_raised_at_once():
    server = Server(failures=1, error=KeyError)
    with pytest.raises(KeyError):
        patiently(server)
    assert len(server.asked_at) == 1


def test_whoever_waits_without_a_deadline_is_told_why_and_ends_only_if_told_to(caplog):
    server, given_up = Server(failures=3), threading.Event()
    without_deadline = partial(
        retry, on=Away, patience_s=0, first_pause_s=0.01, longest_pause_s=0.04, until=given_up
    )
    assert without_deadline(server) == "here"
    assert [record.reason for record in caplog.records] == ["1", "2", "3"]

    def give_up():
        given_up.set()
        return server()

    server.failures = 10_000
    with pytest.raises(Away):
        without_deadline(give_up)
    assert len(server.asked_at) == 5
