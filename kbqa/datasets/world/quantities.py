"""The numbers and dates of the world with every operation, and phrases that compare them."""

from __future__ import annotations

from kbqa.datasets.world.schema import Quantity
from kbqa.logical_forms.algebra import Comparator, Extreme

_OF_DATES = {
    Comparator.GT: "{} after {{}}",
    Comparator.LT: "{} before {{}}",
    Comparator.GE: "{} on {{}} or later",
    Comparator.LE: "{} on {{}} or earlier",
}
_OF_NUMBERS = {
    Comparator.GT: "with more than {{}} {}",
    Comparator.LT: "with less than {{}} {}",
    Comparator.GE: "with at least {{}} {}",
    Comparator.LE: "with at most {{}} {}",
}


def _compared(patterns: dict[Comparator, str], *words: str) -> dict[Comparator, tuple[str, ...]]:
    return {
        comparator: tuple(pattern.format(word) for word in words) for comparator, pattern in patterns.items()
    }


def _extremes(most: tuple[str, ...], least: tuple[str, ...]) -> dict[Extreme, tuple[str, ...]]:
    return {Extreme.MAX: most, Extreme.MIN: least}


QUANTITIES = (
    Quantity(
        "film.film.runtime",
        "film",
        "integer",
        60,
        240,
        ("the length of {}", "how many minutes {} lasts"),
        _extremes(("longest",), ("shortest",)),
        {
            Comparator.GT: ("longer than {} minutes",),
            Comparator.LT: ("shorter than {} minutes",),
            Comparator.GE: ("at least {} minutes long",),
            Comparator.LE: ("at most {} minutes long",),
        },
    ),
    Quantity(
        "film.film.release_date",
        "film",
        "date",
        1950,
        2014,
        ("the release date of {}", "the day on which {} came out"),
        _extremes(("newest", "most recent"), ("oldest", "earliest")),
        _compared(_OF_DATES, "released", "that came out"),
    ),
    Quantity(
        "film.film.rating",
        "film",
        "float",
        110,
        990,
        ("the rating of {}",),
        _extremes(("best rated", "highest rated"), ("worst rated", "lowest rated")),
        {
            Comparator.GT: ("rated above {}", "rated better than {}"),
            Comparator.LT: ("rated below {}", "rated worse than {}"),
            Comparator.GE: ("rated at least {}",),
            Comparator.LE: ("rated at most {}",),
        },
    ),
    Quantity(
        "book.book.pages",
        "book",
        "integer",
        80,
        1200,
        ("the number of pages of {}", "how many pages {} has"),
        _extremes(("longest", "thickest"), ("shortest", "thinnest")),
        _compared(_OF_NUMBERS, "pages"),
    ),
    Quantity(
        "book.book.publication_date",
        "book",
        "date",
        1900,
        2014,
        ("the publication date of {}", "the day on which {} was published"),
        _extremes(("newest", "most recent"), ("oldest", "earliest")),
        _compared(_OF_DATES, "published", "that appeared"),
    ),
    Quantity(
        "people.person.date_of_birth",
        "person",
        "date",
        1900,
        1995,
        ("the date of birth of {}", "{} 's birthday"),
        _extremes(("youngest",), ("oldest",)),
        _compared(_OF_DATES, "born"),
    ),
    Quantity(
        "people.person.height",
        "person",
        "float",
        150,
        210,
        ("the height of {}", "how many metres tall {} is"),
        _extremes(("tallest",), ("shortest",)),
        {
            Comparator.GT: ("taller than {} metres",),
            Comparator.LT: ("shorter than {} metres",),
            Comparator.GE: ("at least {} metres tall",),
            Comparator.LE: ("at most {} metres tall",),
        },
    ),
    Quantity(
        "organization.company.founded",
        "company",
        "gYear",
        1850,
        2010,
        ("the founding year of {}", "the year in which {} was founded"),
        _extremes(("newest", "youngest"), ("oldest",)),
        _compared(
            {
                Comparator.GT: "{} after {{}}",
                Comparator.LT: "{} before {{}}",
                Comparator.GE: "{} in {{}} or later",
                Comparator.LE: "{} in {{}} or earlier",
            },
            "founded",
            "established",
        ),
    ),
    Quantity(
        "organization.company.employees",
        "company",
        "integer",
        20,
        90_000,
        ("the number of employees of {}", "how many people work for {}"),
        _extremes(("largest", "biggest"), ("smallest",)),
        _compared(_OF_NUMBERS, "employees"),
    ),
    Quantity(
        "location.city.population",
        "city",
        "integer",
        9_000,
        9_000_000,
        ("the population of {}", "how many people live in {}"),
        _extremes(("most populous", "largest"), ("least populous", "smallest")),
        _compared(_OF_NUMBERS, "inhabitants"),
    ),
    Quantity(
        "location.country.area",
        "country",
        "integer",
        900,
        900_000,
        ("the area of {}",),
        _extremes(("largest", "biggest"), ("smallest",)),
        _compared(_OF_NUMBERS, "square kilometres"),
    ),
    Quantity(
        "education.university.enrolment",
        "university",
        "integer",
        400,
        60_000,
        ("the enrolment of {}", "how many students {} has"),
        _extremes(("largest", "biggest"), ("smallest",)),
        _compared(_OF_NUMBERS, "students"),
    ),
    Quantity(
        "event.event.date",
        "event",
        "date",
        1980,
        2014,
        ("the date of {}", "the day of {}"),
        _extremes(("latest", "most recent"), ("earliest", "first")),
        _compared(_OF_DATES, "held", "that took place"),
    ),
    Quantity(
        "event.event.attendance",
        "event",
        "integer",
        100,
        80_000,
        ("the attendance of {}", "how many people came to {}"),
        _extremes(("best attended", "most visited"), ("worst attended", "least visited")),
        _compared(_OF_NUMBERS, "visitors"),
    ),
)
