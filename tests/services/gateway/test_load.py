"""A few streams at a time, for a few seconds: what the benchmark measures at length."""

from __future__ import annotations

from benchmarks import gateway


def test_streams_end_and_beyond_the_places_are_refusals_alone():
    busy, beyond = gateway.load(streams=8, seconds=2.0, pause_s=0.1, excess=4)
    assert set(busy.ends) == {"done"}
    assert busy.ends["done"] >= 8
    assert len(busy.overheads_ms) == 9 * busy.ends["done"]  # linked, four thoughts, three observations, done
    assert 0 < busy.percentile_ms(50) < 1000
    assert busy.resident
    assert set(beyond.ends) <= {"done", "429"}
    assert beyond.ends["done"] >= 8
    assert beyond.ends.total() == 12
