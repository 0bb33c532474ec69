"""Quantities of invented schemas: numbers and dates, and phrases that compare them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbqa.datasets.world.schema import Quantity
from kbqa.logical_forms.algebra import Comparator, Extreme


@dataclass(frozen=True, slots=True)
class Measure:
    """What English says of a quantity: adjectives for much and little of it, and their comparatives."""

    most: tuple[str, ...]
    least: tuple[str, ...]
    more: tuple[str, ...]
    less: tuple[str, ...]


MEASURES: Mapping[str, Measure] = {
    "age": Measure(("oldest", "eldest"), ("youngest",), ("older",), ("younger",)),
    "breadth": Measure(("broadest", "widest"), ("narrowest",), ("broader", "wider"), ("narrower",)),
    "capacity": Measure(("largest", "roomiest"), ("smallest",), ("larger",), ("smaller",)),
    "cost": Measure(("costliest", "dearest"), ("cheapest",), ("costlier",), ("cheaper",)),
    "density": Measure(("densest",), ("sparsest", "thinnest"), ("denser",), ("sparser",)),
    "depth": Measure(("deepest",), ("shallowest",), ("deeper",), ("shallower",)),
    "difficulty": Measure(("hardest", "most difficult"), ("easiest",), ("harder",), ("easier",)),
    "distance": Measure(("farthest", "remotest"), ("nearest", "closest"), ("farther",), ("nearer",)),
    "duration": Measure(("longest",), ("shortest", "briefest"), ("longer",), ("shorter",)),
    "height": Measure(("tallest", "highest"), ("shortest", "lowest"), ("taller", "higher"), ("lower",)),
    "income": Measure(("richest", "best paid"), ("poorest",), ("richer",), ("poorer",)),
    "length": Measure(("longest",), ("shortest",), ("longer",), ("shorter",)),
    "loudness": Measure(("loudest",), ("quietest",), ("louder",), ("quieter",)),
    "population": Measure(("most populous", "largest"), ("least populous",), ("larger",), ("smaller",)),
    "price": Measure(("most expensive", "priciest"), ("cheapest",), ("dearer",), ("cheaper",)),
    "quality": Measure(("best", "finest"), ("worst", "poorest"), ("better",), ("worse",)),
    "score": Measure(("best", "top"), ("worst",), ("better",), ("worse",)),
    "size": Measure(("largest", "biggest"), ("smallest", "tiniest"), ("larger", "bigger"), ("smaller",)),
    "speed": Measure(("fastest", "quickest"), ("slowest",), ("faster",), ("slower",)),
    "strength": Measure(("strongest",), ("weakest",), ("stronger",), ("weaker",)),
    "temperature": Measure(("hottest", "warmest"), ("coldest", "coolest"), ("hotter",), ("colder",)),
    "thickness": Measure(("thickest",), ("thinnest",), ("thicker",), ("thinner",)),
    "volume": Measure(("largest",), ("smallest",), ("larger",), ("smaller",)),
    "weight": Measure(("heaviest",), ("lightest",), ("heavier",), ("lighter",)),
    "width": Measure(("widest",), ("narrowest",), ("wider",), ("narrower",)),
}

# Records of a number, and comparisons with one; {N} is the quantity's name.
_RECORDS = {
    Extreme.MAX: ("highest {N}", "greatest {N}", "largest {N}", "most {N}", "top {N}", "maximum {N}"),
    Extreme.MIN: ("lowest {N}", "smallest {N}", "least {N}", "minimum {N}"),
}
_NUMBERS = {
    Comparator.GT: (
        *("with more than {{}} {N}", "whose {N} is above {{}}", "with {N} over {{}}"),
        *("with a {N} greater than {{}}", "that have {N} exceeding {{}}", "with a {N} of more than {{}}"),
    ),
    Comparator.LT: (
        *("with less than {{}} {N}", "whose {N} is below {{}}", "with {N} under {{}}"),
        *("with a {N} smaller than {{}}", "with fewer than {{}} {N}", "with a {N} of less than {{}}"),
    ),
    Comparator.GE: (
        *("with at least {{}} {N}", "whose {N} is at least {{}}", "with {N} of {{}} or more"),
        *("with {{}} {N} or more", "with no less than {{}} {N}"),
    ),
    Comparator.LE: (
        *("with at most {{}} {N}", "whose {N} is at most {{}}", "with {N} of {{}} or less"),
        *("with up to {{}} {N}", "that do not exceed {{}} {N}", "with no more than {{}} {N}"),
    ),
}
# Of a date: {n} is the verb's participle (built).
_LATEST = ("latest", "newest", "most recent", "last", "most recently {n}", "last {n}", "youngest")
_EARLIEST = ("earliest", "first", "oldest", "first {n}", "earliest {n}")
_DATES = {
    Comparator.GT: ("{n} after {{}}", "{n} later than {{}}", "that were {n} after {{}}"),
    Comparator.LT: ("{n} before {{}}", "{n} earlier than {{}}", "that were {n} before {{}}"),
    Comparator.GE: ("{n} in {{}} or later", "{n} since {{}}", "{n} from {{}} on", "{n} not before {{}}"),
    Comparator.LE: ("{n} in {{}} or earlier", "{n} until {{}}", "{n} by {{}}", "{n} not after {{}}"),
}
_NUMBER_NAMED = ("the {N} of {{}}", "{{}} 's {N}", "how much {N} {{}} has", "the {N} that {{}} has")
_DATE_NAMED = (
    *("the {noun} of {base} of {{}}", "when {{}} was {n}", "{{}} 's {base} {noun}"),
    *("the {noun} {{}} was {n}", "the {base} {noun} of {{}}"),
)


def number(name: str, words: str, head: str, rng: random.Random) -> Quantity:
    """A quantity in numbers.

    Args:
        words: what it is called.
    """
    datatype = rng.choice(("integer", "integer", "float", "decimal"))
    low = rng.choice((1, 10, 100, 1_000))
    adjectives = MEASURES.get(words)
    comparisons = {
        comparator: tuple(pattern.format(N=words) for pattern in rng.sample(patterns, 3))
        for comparator, patterns in _NUMBERS.items()
    }
    if adjectives is not None:
        more, less = rng.choice(adjectives.more), rng.choice(adjectives.less)
        comparisons[Comparator.GT] += (f"{more} than {{}}", f"that are {more} than {{}}")
        comparisons[Comparator.LT] += (f"{less} than {{}}", f"that are {less} than {{}}")
    return Quantity(
        name,
        head,
        datatype,
        low,
        low * rng.choice((20, 100, 1_000)),
        tuple(pattern.format(N=words) for pattern in rng.sample(_NUMBER_NAMED, 2)),
        {Extreme.MAX: adjectives.most, Extreme.MIN: adjectives.least} if adjectives is not None else {},
        comparisons,
        records={
            extreme: tuple(pattern.format(N=words) for pattern in rng.sample(patterns, 3))
            for extreme, patterns in _RECORDS.items()
        },
    )


def day(name: str, *, base: str, done: str, noun: str, head: str, rng: random.Random) -> Quantity:
    """A quantity in dates: when something was done.

    Args:
        base, done: the act (foundation), and the participle of its verb (founded).
        noun: what the name calls it: date, day, year.
    """

    def some(patterns: Sequence[str], count: int) -> tuple[str, ...]:
        return tuple(pattern.format(n=done, base=base, noun=noun) for pattern in rng.sample(patterns, count))

    return Quantity(
        name,
        head,
        "gYear" if noun == "year" else "date",
        rng.randint(1850, 1960),
        rng.randint(1990, 2020),
        some(_DATE_NAMED, 3),
        {Extreme.MAX: some(_LATEST, 4), Extreme.MIN: some(_EARLIEST, 3)},
        {comparator: some(patterns, 2) for comparator, patterns in _DATES.items()},
    )
