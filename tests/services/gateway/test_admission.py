"""Lines of batches beside the questions of callers who wait."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from services.gateway.admission import Admission


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def begin(admission, count):
    """Tasks that each take a place and keep it until they are cancelled; and who has one."""
    inside = set()

    async def line(number):
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(admission.line())
            inside.add(number)
            stack.callback(inside.discard, number)
            await asyncio.Event().wait()

    return inside, [asyncio.create_task(line(number)) for number in range(count)]


async def end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_lines_begin_one_at_a_time_while_somebody_waits():
    async def play():
        admission = Admission(3)
        admission.question_began()
        inside, tasks = begin(admission, 5)
        await settle()
        assert inside == {0}
        await end(tasks[:1])
        await settle()
        assert inside == {1}
        admission.question_ended()
        await settle()
        assert inside == {1, 2, 3}
        await end(tasks)

    asyncio.run(play())


def test_a_line_that_is_given_up_leaves_its_place_to_the_next():
    async def play():
        admission = Admission(1)
        inside, tasks = begin(admission, 4)
        await settle()
        await end(tasks[1:2])  # it waits
        await end(tasks[:1])  # it has the place, which goes to the next one at the same moment
        assert inside <= {2}
        await settle()
        assert inside == {2}
        tasks[2].cancel()
        await asyncio.sleep(0)
        tasks[3].cancel()  # it was given the place, but has not begun
        await settle()
        again, more = begin(admission, 1)
        await settle()
        assert again == {0}
        await end(more)

    asyncio.run(play())
