"""One contract for the shelves, in this process and in a real Redis."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
import redis
from prometheus_client import CollectorRegistry

from kbqa.errors import ConfigurationError
from kbqa.telemetry.metrics import Metrics
from services.gateway.errors import ShelfUnavailableError
from services.gateway.shelves import MemoryShelf, Pointer, RedisShelf

ROOM = 2**20


def in_redis(url, most=3):
    return RedisShelf(url, "test", most, ROOM, Metrics(CollectorRegistry()), timeout_s=2.0)


@pytest.fixture(params=["memory", "redis"])
def on_a_shelf(request, redis_url):
    """Runs a coroutine function with a shelf of three places."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

    def run(play):
        async def opened():
            shelf = MemoryShelf(3, ROOM) if request.param == "memory" else in_redis(redis_url)
            try:
                return await play(shelf)
            finally:
                await shelf.close()

        return asyncio.run(opened())

    return run


def test_what_is_put_is_got_until_it_is_replaced(on_a_shelf):
    async def play(shelf):
        seen = [await shelf.get("k")]
        for value in (b"one", "zwei £".encode()):
            await shelf.put("k", value, 60)
            seen.append(await shelf.get("k"))
        return seen

    assert on_a_shelf(play) == [None, b"one", "zwei £".encode()]


def test_a_value_has_its_time(on_a_shelf):
    async def play(shelf):
        await shelf.put("k", b"x", 0.05)
        await asyncio.sleep(0.1)
        return await shelf.get("k"), await shelf.claim("k", b"y", 60), await shelf.get("k")

    assert on_a_shelf(play) == (None, True, b"y")


def test_one_of_many_gets_a_claim(on_a_shelf):
    async def play(shelf):
        return await asyncio.gather(*(shelf.claim("k", str(n).encode(), 60) for n in range(10)))

    assert sorted(on_a_shelf(play)) == [False] * 9 + [True]


def test_the_newest_are_kept(on_a_shelf):
    async def play(shelf):
        for n in range(5):
            await shelf.put(f"k{n}", b"x", 60)
            await asyncio.sleep(0.01)  # Redis orders by the clock
        return [await shelf.get(f"k{n}") is not None for n in range(5)]

    assert on_a_shelf(play) == [False, False, True, True, True]


def test_what_is_huge_is_not_kept(on_a_shelf):
    async def play(shelf):
        stored = await shelf.put("k", b"x" * (5 * 2**20), 60, pointer=Pointer("p", b"to k"))
        return stored, await shelf.get("k"), await shelf.get("p")

    assert on_a_shelf(play) == (False, None, None)


def test_connections_of_a_redis_that_was_replaced_do_not_matter(redis_url):
    async def play():
        shelf = in_redis(redis_url)
        await asyncio.gather(*(shelf.put(f"{number}", b"a", 60) for number in range(3)))
        with redis.Redis.from_url(redis_url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        kept = [await shelf.get("0"), await shelf.put("1", b"b", 60), await shelf.get("1")]
        await shelf.close()
        return kept

    assert asyncio.run(play()) == [b"a", True, b"b"]


def test_a_redis_that_is_gone_is_said_to_be():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"redis://127.0.0.1:{probe.getsockname()[1]}/0"

    async def play():
        shelf = in_redis(url)
        for attempt in (shelf.get("k"), shelf.put("k", b"", 1), shelf.claim("k", b"", 1)):
            with pytest.raises(ShelfUnavailableError, match="try again later"):
                await attempt
        await shelf.close()

    asyncio.run(play())
    with pytest.raises(ConfigurationError, match="KBQA_REDIS_URL"):
        in_redis("http://x")


def test_one_owner_does_not_displace_another(on_a_shelf):
    async def play(shelf):
        await shelf.put("mine", b"x", 60, "me")
        for number in range(9):
            await shelf.put(f"theirs-{number}", b"y", 60, "they")
        return await shelf.get("mine"), await shelf.get("theirs-0"), await shelf.get("theirs-8")

    assert on_a_shelf(play) == (b"x", None, b"y")


def test_many_owners_share_one_room_and_the_oldest_values_of_all_go_first(on_a_shelf):
    async def play(shelf):
        for owner in range(300):
            for number in range(2):
                await shelf.put(f"{owner}-{number}", os.urandom(8192), 60, f"owner-{owner}")
        kept = [await shelf.get(f"{owner}-0") is not None for owner in range(300)]
        await shelf.put("299-0", b"small", 60, "owner-299")
        return kept, await shelf.get("299-0"), await shelf.get("299-1") is not None

    kept, replaced, other = on_a_shelf(play)
    assert kept == sorted(kept), "an older value outlived a newer one"
    assert 0.8 * ROOM < 2 * sum(kept) * (8192 + 1024) <= ROOM
    assert (replaced, other) == (b"small", True)


def test_what_is_kept_takes_no_more_of_redis_than_its_room(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

        async def play():
            shelf = in_redis(redis_url)
            for number in range(3000):
                await shelf.put(f"answer:{number:032x}", b"", 60, f"owner-{number % 2000:032x}")
            await shelf.put("short", b"x", 0.05, "owner")
            await asyncio.sleep(0.1)
            await shelf.put("last", b"x", 60, "owner")
            await shelf.close()

        asyncio.run(play())
        sizes = {name: client.memory_usage(name) for name in client.scan_iter("test:*")}
        costs = client.hgetall("test:costs")
    assert sum(sizes.values()) <= ROOM
    total = int(costs.pop(b"total"))
    assert total == sum(int(cost.split(b" ")[0]) for cost in costs.values())
    assert b"test:short" not in costs
    values = {name for name in sizes if not name.startswith((b"test:newest:", b"test:ages", b"test:costs"))}
    assert values == set(costs), "nothing is kept that does not count"


@pytest.mark.parametrize("lost", ["test:ages", "test:costs"])
def test_a_redis_that_evicts_what_counts_the_values_keeps_new_ones(redis_url, lost):
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

        async def play():
            shelf = in_redis(redis_url)
            for number in range(300):
                await shelf.put(f"old-{number}", os.urandom(8192), 60, f"owner-{number}")
            client.delete(lost)
            await shelf.put("first", b"x", 60, "owner")
            await shelf.put("second", b"y", 60, "owner")
            found = await shelf.get("first"), await shelf.get("second")
            await shelf.close()
            return found

        assert asyncio.run(play()) == (b"x", b"y")
        assert int(client.hget("test:costs", "total")) < 3 * 1024


def test_a_claim_makes_room_for_nobody(on_a_shelf):
    async def play(shelf):
        await shelf.claim("k", b"claim", 60)
        for number in range(9):
            await shelf.put(f"other-{number}", b"x", 60)
        return await shelf.get("k"), await shelf.claim("k", b"again", 60)

    assert on_a_shelf(play) == (b"claim", False)


def test_only_who_made_a_claim_renews_and_releases_it(on_a_shelf):
    async def play(shelf):
        await shelf.claim("k", b"mine", 0.05)
        await asyncio.sleep(0.1)
        assert not await shelf.renew("k", b"mine", 60), "it has expired"
        await shelf.claim("k", b"theirs", 0.1)
        assert not await shelf.renew("k", b"mine", 60)
        await shelf.release("k", b"mine")
        assert await shelf.renew("k", b"theirs", 60)
        await asyncio.sleep(0.15)
        kept = await shelf.get("k")
        await shelf.release("k", b"theirs")
        return kept, await shelf.get("k")

    assert on_a_shelf(play) == (b"theirs", None)


def test_a_pointer_takes_the_place_of_a_claim_and_goes_with_its_value(on_a_shelf):
    async def play(shelf):
        await shelf.claim("p0", b"claim", 60)
        for n in range(5):
            await shelf.put(f"k{n}", b"x", 60, pointer=Pointer(f"p{n}", b"to k%d" % n))
            await asyncio.sleep(0.01)  # Redis orders by the clock
        await shelf.put("k4", b"y", 60)
        await shelf.release("p3", b"to k0")
        return [await shelf.get(f"p{n}") for n in range(5)], await shelf.claim("p3", b"claim", 60)

    pointers, claimed = on_a_shelf(play)
    assert pointers == [None, None, b"to k2", b"to k3", None], (
        "k0 and k1 made room, k4 has a value without one"
    )
    assert not claimed


def test_a_pointer_has_the_time_of_its_value_and_can_be_released(on_a_shelf):
    async def play(shelf):
        await shelf.put("short", b"x", 0.05, pointer=Pointer("to-short", b"1"))
        await shelf.put("long", b"x", 60, pointer=Pointer("to-long", b"2"))
        await asyncio.sleep(0.1)
        await shelf.release("to-long", b"2")
        return await shelf.get("to-short"), await shelf.get("to-long"), await shelf.get("long")

    assert on_a_shelf(play) == (None, None, b"x")


def test_what_points_to_values_counts_as_they_do(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

        async def play():
            shelf = in_redis(redis_url)
            for number in range(3000):
                pointer = Pointer(f"request:{number:064x}", os.urandom(100))
                await shelf.put(f"answer:{number:032x}", b"", 60, f"owner-{number % 2000:032x}", pointer)
            await shelf.close()

        asyncio.run(play())
        names = list(client.scan_iter("test:*"))
        assert sum(client.memory_usage(name) for name in names) <= ROOM
        kept = [sum(name.startswith(kind) for name in names) for kind in (b"test:answer:", b"test:request:")]
    assert kept[0] == kept[1] > 300
