"""What counts as growth."""

from __future__ import annotations

from benchmarks.growth import verdict


def growing(*values: float, kind: str = "resident") -> list[str]:
    return verdict({("gateway", kind): values})[1]


def test_a_steady_rise_after_the_first_third_is_growth() -> None:
    assert growing(*range(100, 400)) == ["gateway resident"]
    assert growing(*range(300), kind="files") == ["gateway files"]


def test_a_few_samples_say_nothing() -> None:
    assert growing(*range(100, 400, 10)) == []


def test_what_fills_at_first_or_comes_and_goes_is_not() -> None:
    assert growing(*range(100, 400, 3), *[400] * 200) == []
    assert growing(*[100, 500] * 150) == []
