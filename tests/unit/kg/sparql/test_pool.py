"""Queries in processes: killed at the deadline, bounded in memory and size."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from kbqa.errors import (
    GraphUnavailableError,
    QueryLostError,
    QueryMemoryError,
    QueryOverloadError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.embedded.oxigraph import OxigraphStore, write_graph
from kbqa.kg.sparql.guard import ResultFormat, check_query
from kbqa.kg.sparql.pool import QueryPool

PROMPTLY_S = 10.0  # a small part of what the bomb would take
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o . ?p ?q ?r }"


@pytest.fixture(scope="module")
def store():
    return OxigraphStore.from_triples((f"s{n}", "r", f"o{n % 7}") for n in range(300))


@pytest.fixture
def pool():
    pool = QueryPool(1)
    yield pool
    pool.close()


def run(pool, store, text, result=ResultFormat.JSON, deadline_s=10.0):
    return pool.run(store._directory, check_query(text), result, deadline_s=deadline_s)


def test_a_query_bomb_is_killed_at_its_deadline_and_the_next_query_runs(pool, store):
    run(pool, store, "ASK {}")
    started = time.monotonic()
    with pytest.raises(QueryTimeoutError, match="stopped after 0.3 s"):
        run(pool, store, BOMB, deadline_s=0.3)
    assert time.monotonic() - started < PROMPTLY_S
    assert run(pool, store, "ASK {}").body == b'{"head":{},"boolean":true}'


def test_look_ups_flow_while_a_query_bomb_runs(pool, store):
    with pytest.raises(QueryTimeoutError):
        run(pool, store, BOMB, deadline_s=0.05)
    failures = []

    def bomb():
        try:
            run(pool, store, BOMB, deadline_s=1.5)
        except QueryTimeoutError as error:
            failures.append(error)

    thread = threading.Thread(target=bomb)
    thread.start()
    answered = 0
    while thread.is_alive():
        assert store.tail_entities(["s1"], ["r"], limit=10).total == 1
        answered += 1
    thread.join()
    assert len(failures) == 1
    assert answered > 100


def test_waiting_for_a_process_is_bounded(pool, store):
    run(pool, store, "ASK {}")
    process = process_of(pool)
    thread = threading.Thread(
        target=lambda: pytest.raises(QueryLostError, run, pool, store, BOMB, deadline_s=60.0)
    )
    thread.start()
    while not pool._idle.empty():
        time.sleep(0.01)
    with pytest.raises(QueryOverloadError, match="no query process became free"):
        run(pool, store, "ASK {}", deadline_s=0.2)
    os.kill(process.pid, signal.SIGKILL)
    thread.join()


def test_a_query_that_exhausts_memory_fails_alone(store):
    pool = QueryPool(1, memory_bytes=320 * 2**20)
    doubled = " ".join(f"BIND(CONCAT(?x{n}, ?x{n}) AS ?x{n + 1})" for n in range(26))
    hungry = f'SELECT ?x26 {{ BIND("sixteen letters " AS ?x0) {doubled} }}'
    with pytest.raises(QueryMemoryError, match="memory"):
        run(pool, store, hungry, deadline_s=600.0)
    assert run(pool, store, "ASK {}").rows == 1
    pool.close()


def test_a_crash_of_the_engine_is_an_error_of_its_query_alone(pool, store, monkeypatch):
    text = "SELECT * " + "{" * 20_000 + "}" * 20_000
    unchecked = SimpleNamespace(text=text, in_source=str)
    with monkeypatch.context() as patch:
        patch.setattr("kbqa.kg.sparql.pool.lenient", lambda _: unchecked)
        with pytest.raises(QueryMemoryError, match="stack"):
            run(pool, store, "ASK {}", deadline_s=20.0)
    assert run(pool, store, "ASK {}").rows == 1


def test_results_are_cut_by_rows_and_by_bytes_and_say_so(store):
    few = QueryPool(1, max_rows=5)
    assert (few_rows := run(few, store, "SELECT * { ?s ?p ?o }")).rows == 5
    assert few_rows.truncated
    assert not run(few, store, "SELECT * { ?s ?p ?o } LIMIT 5").truncated
    construct = run(few, store, "CONSTRUCT WHERE { ?s ?p ?o }", ResultFormat.NTRIPLES)
    assert (construct.rows, construct.truncated, construct.body.count(b"\n")) == (5, True, 5)
    few.close()
    small = QueryPool(1, max_bytes=2000)
    cut = run(small, store, "SELECT * { ?s ?p ?o }")
    assert cut.truncated
    assert 0 < cut.rows < 300
    assert len(cut.body) < 2200
    small.close()


@pytest.mark.parametrize(
    ("result", "start"),
    [
        (
            ResultFormat.JSON,
            b'{"head":{"vars": ["x", "y", "z"]},"results":{"bindings":[{"x":{"type":"literal"',
        ),
        (ResultFormat.XML, b'<?xml version="1.0"?><sparql'),
        (ResultFormat.CSV, b'x,y,z\r\n1,"a""b",\r\n'),
        (ResultFormat.TSV, b'?x\t?y\t?z\n1\t"a\\"b"@en\t\n'),
    ],
)
def test_rows_are_written_in_every_format(pool, store, result, start):
    answer = run(pool, store, "SELECT ?x ?y ?z { VALUES (?x ?y) { (1 'a\"b'@en) } }", result)
    assert answer.format is result
    assert answer.body.startswith(start)
    assert run(pool, store, "ASK {}", result).rows == 1


def test_a_syntax_error_says_where(pool, store):
    with pytest.raises(QuerySyntaxError, match=r"error at 1:16"):
        run(pool, store, "SELECT * {?s ?p")


def test_a_store_that_is_gone_is_an_error(pool, tmp_path):
    with pytest.raises(GraphUnavailableError, match="cannot be read"):
        pool.run(tmp_path / "none", check_query("ASK {}"), ResultFormat.JSON, deadline_s=5.0)


def process_of(pool):
    """The pool's one process, once it has one at rest."""
    for _ in range(200):
        if not pool._idle.empty() and pool._idle.queue[0] is not None:
            return pool._idle.queue[0]._child
        time.sleep(0.05)
    raise AssertionError("no process was started")


def test_a_store_without_facts_is_opened_once(pool, tmp_path):
    write_graph(tmp_path, [], named=True)
    empty = OxigraphStore(tmp_path, version="v", named=True, queries=pool)
    run(pool, empty, "ASK {}")
    (tmp_path / "store").rename(tmp_path / "moved")
    assert run(pool, empty, "ASK {}").rows == 1


def test_a_process_that_is_killed_from_outside_costs_its_query_alone(pool, store):
    run(pool, store, "ASK {}")
    child = process_of(pool)
    threading.Timer(0.3, os.kill, (child.pid, signal.SIGKILL)).start()
    started = time.monotonic()
    with pytest.raises(QueryLostError, match="send the query again"):
        run(pool, store, BOMB, deadline_s=60.0)
    assert time.monotonic() - started < 30.0
    assert run(pool, store, "ASK {}").rows == 1


def test_a_process_that_is_killed_while_it_idles_costs_nothing(pool, store):
    run(pool, store, "ASK {}")
    os.kill(process_of(pool).pid, signal.SIGKILL)
    time.sleep(0.2)
    assert run(pool, store, "ASK {}").rows == 1


def test_a_process_that_is_stopped_is_replaced_at_the_deadline(pool, store):
    run(pool, store, "ASK {}")
    os.kill(process_of(pool).pid, signal.SIGSTOP)
    long = f"SELECT * {{ VALUES ?x {{ '{'x' * 90_000}' }} }}"  # more than a pipe holds
    with pytest.raises(QueryTimeoutError):
        run(pool, store, long, deadline_s=0.5)
    assert run(pool, store, long).rows == 1


def test_each_execution_is_measured_without_the_wait_for_a_process(store):
    seconds = []
    pool = QueryPool(1, observe=seconds.append)
    run(pool, store, "ASK {}")
    with pytest.raises(QueryTimeoutError):
        run(pool, store, BOMB, deadline_s=0.5)
    pool.close()
    assert len(seconds) == 2
    assert 0 < seconds[0] < 10
    assert 0.5 <= seconds[1] < 10


def test_processes_can_be_started_beforehand(store):
    pool = QueryPool(2)
    pool.warm()
    assert [process is not None and process.alive() for process in pool._idle.queue] == [True, True]
    pool.close()


def test_a_process_that_holds_much_memory_is_replaced(pool, store):
    pool = QueryPool(1, memory_bytes=600 * 2**20)
    run(pool, store, "ASK {}")
    first = process_of(pool).pid
    pool._idle.queue[0]._memory_bytes = 20 * 2**20
    assert run(pool, store, "SELECT * { ?s ?p ?o }").rows == 300
    assert process_of(pool).pid != first
    pool.close()


def test_no_process_outlives_a_closed_pool(store):
    pool = QueryPool(1)
    run(pool, store, "ASK {}")
    process = process_of(pool)
    pool.close()
    assert process.poll() is not None
