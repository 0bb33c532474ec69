"""A thread that is waited for goes on while the event loop is busy, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.concurrency import run_in_threadpool

from services.kg_server.changes import GivingWay


async def _beside_a_busy_loop(work):
    """What `work` returns, and how often the loop came round until then."""
    rounds = 0

    async def stay_busy():
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(stay_busy())
    try:
        async with GivingWay():
            return await run_in_threadpool(work), rounds
    finally:
        busy.cancel()


def test_work_ends_and_the_loop_goes_on_meanwhile(tmp_path: Path):
    def work():
        for number in range(50):  # each file gives the interpreter's lock away several times
            (tmp_path / str(number)).write_text("a change")
        return len(list(tmp_path.iterdir()))

    made, rounds = asyncio.run(_beside_a_busy_loop(work))
    assert made == 50
    assert rounds > 1


def test_an_error_of_the_work_is_raised_and_nothing_goes_on_sleeping():
    async def fail():
        with pytest.raises(ZeroDivisionError):
            await _beside_a_busy_loop(lambda: 1 // 0)
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(fail()) == set()


def test_many_changes_at_once_take_no_more_of_the_loop_than_one():
    async def tasks_beside(number):
        giving_way, ended = GivingWay(), asyncio.Event()

        async def wait():
            async with giving_way:
                await ended.wait()

        waiting = [asyncio.create_task(wait()) for _ in range(number)]
        await asyncio.sleep(0.01)
        beside = asyncio.all_tasks() - {asyncio.current_task(), *waiting}
        ended.set()
        await asyncio.gather(*waiting)
        await asyncio.sleep(0)
        return len(beside), len(asyncio.all_tasks()) - 1

    assert asyncio.run(tasks_beside(1)) == (1, 0)
    assert asyncio.run(tasks_beside(5)) == (1, 0)
