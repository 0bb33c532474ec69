"""The schema of the generated world: types, relations, and how people ask for them.

A phrase holds one `{}` for the thing it starts from. Forward phrases ask for the
tail of a relation, inverse phrases for its heads. A compound goes through a node
without a name (a CVT, as Freebase has them) and counts as two hops.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.trajectory import Hop


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation between two types.

    Attributes:
        tails: fewest and most tails of a head.
        share: share of the heads that have it at all.
        forward, inverse: phrases that ask for its tails and heads; () if no question does.
    """

    name: str
    head: str
    tail: str
    forward: tuple[str, ...]
    inverse: tuple[str, ...] = ()
    tails: tuple[int, int] = (1, 1)
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a question can ask of a thing: its hops, and the phrases for it."""

    head: str
    tail: str
    hops: tuple[Hop, ...]
    phrases: tuple[str, ...]


RELATIONS = (
    Relation(
        "people.person.place_of_birth",
        "person",
        "city",
        ("the birthplace of {}", "the city where {} was born"),
    ),
    Relation(
        "people.person.nationality", "person", "country", ("the nationality of {}", "{} 's home country")
    ),
    Relation(
        "people.person.profession",
        "person",
        "profession",
        ("the profession of {}", "what {} does for a living"),
    ),
    Relation(
        "people.person.parents",
        "person",
        "person",
        ("the parents of {}", "{} 's mother and father"),
        ("the children of {}", "{} 's kids"),
        tails=(1, 2),
        share=0.6,
    ),
    Relation(
        "people.person.spouse",
        "person",
        "person",
        ("the spouse of {}", "{} 's partner"),
        share=0.7,
    ),
    Relation("people.person.alma_mater", "person", "university", ()),
    Relation(
        "people.person.date_of_birth",
        "person",
        "year",
        ("the birth year of {}", "the year {} came into the world"),
    ),
    Relation("people.person.religion", "person", "religion", ()),
    Relation("people.person.employment", "person", "employment", (), share=0.8),
    Relation("people.employment.employer", "employment", "company", ()),
    Relation("people.employment.role", "employment", "role", ()),
    Relation("people.employment.since", "employment", "year", ()),
    Relation(
        "film.film.directed_by",
        "film",
        "person",
        ("the director of {}", "the person who directed {}"),
        ("the films directed by {}", "the movies {} made"),
    ),
    Relation(
        "film.film.starring",
        "film",
        "person",
        ("the stars of {}", "the actors in {}"),
        tails=(1, 3),
    ),
    Relation("film.film.genre", "film", "genre", ()),
    Relation("film.film.release_date", "film", "year", ()),
    Relation("film.film.country", "film", "country", ()),
    Relation("film.film.music", "film", "person", ()),
    Relation("film.film.producer", "film", "person", ()),
    Relation("film.film.distributor", "film", "company", ()),
    Relation("film.film.language", "film", "language", ()),
    Relation(
        "book.book.author",
        "book",
        "person",
        ("the author of {}", "the writer of {}"),
        ("the books by {}", "the novels {} wrote"),
    ),
    Relation("book.book.publisher", "book", "company", ()),
    Relation("book.book.publication_date", "book", "year", ()),
    Relation("book.book.genre", "book", "genre", ()),
    Relation("book.book.language", "book", "language", ()),
    Relation("book.book.editor", "book", "person", ()),
    Relation("book.book.illustrator", "book", "person", ()),
    Relation("book.book.translator", "book", "person", ()),
    Relation(
        "organization.organization.founder",
        "company",
        "person",
        ("the founder of {}", "the person who started {}"),
    ),
    Relation("organization.organization.headquarters", "company", "city", ()),
    Relation("education.university.city", "university", "city", ()),
    Relation("location.city.country", "city", "country", ("the country of {}", "the nation {} belongs to")),
    Relation("location.city.mayor", "city", "person", ()),
    Relation(
        "location.country.capital",
        "country",
        "city",
        ("the capital of {}", "{} 's seat of government"),
    ),
    Relation(
        "location.country.official_language",
        "country",
        "language",
        ("the language of {}", "the language spoken in {}"),
    ),
    Relation("event.event.location", "event", "city", ()),
    Relation("event.event.date", "event", "date", ("the date of {}", "the day of {}")),
    Relation(
        "event.event.winner",
        "event",
        "person",
        ("the winner of {}", "the champion of {}"),
        ("the events won by {}", "the contests {} won"),
    ),
    Relation("event.event.runner_up", "event", "person", ()),
    Relation("event.event.sponsor", "event", "company", ()),
    Relation("event.event.host_country", "event", "country", ()),
    Relation("event.event.organizer", "event", "person", ()),
    Relation("event.event.judge", "event", "person", ()),
)

_COMPOUNDS = (
    Step(
        "person",
        "company",
        (Hop("people.person.employment"), Hop("people.employment.employer")),
        ("the employer of {}", "the company {} works for"),
    ),
)

STEPS = (
    *(Step(r.head, r.tail, (Hop(r.name),), r.forward) for r in RELATIONS if r.forward),
    *(Step(r.tail, r.head, (Hop(r.name, True),), r.inverse) for r in RELATIONS if r.inverse),
    *_COMPOUNDS,
)

QUESTION_FORMS = ("what is {} ?", "who or what is {} ?", "name {} .", "i want to know {} .")

# How many entities of each type a world of size 1 has; 1,700 in all, dates and years aside.
POPULATION = {
    "person": 700,
    "film": 320,
    "book": 220,
    "event": 160,
    "company": 90,
    "city": 90,
    "university": 30,
    "country": 24,
    "language": 16,
    "profession": 24,
    "role": 16,
    "genre": 14,
    "religion": 9,
}
