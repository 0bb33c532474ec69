"""The schema of the small world: types, relations, and phrases that ask for them.

A phrase has one `{}` for the entity from which it starts. Forward phrases ask for the
tails of a relation, inverse phrases for its heads. A compound leads through a node
without a name (a CVT, as in Freebase) and counts as two hops.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.trajectory import Hop


@dataclass(frozen=True, slots=True)
class WorldRelation:
    """A relation between two types.

    Attributes:
        forward, inverse: phrases that ask for its tails and heads; empty if no question does.
        tails: minimum and maximum number of tails per head.
        share: share of the heads that have the relation.
    """

    name: str
    head: str
    tail: str
    forward: tuple[str, ...]
    inverse: tuple[str, ...] = ()
    tails: tuple[int, int] = (1, 1)
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class WorldStep:
    """A step of a question: its hops, and phrases that ask for it."""

    head: str
    tail: str
    hops: tuple[Hop, ...]
    phrases: tuple[str, ...]


RELATIONS = (
    WorldRelation(
        "people.person.place_of_birth",
        "person",
        "city",
        ("the birthplace of {}", "the city where {} was born"),
    ),
    WorldRelation(
        "people.person.nationality", "person", "country", ("the nationality of {}", "{} 's home country")
    ),
    WorldRelation(
        "people.person.profession",
        "person",
        "profession",
        ("the profession of {}", "what {} does for a living"),
    ),
    WorldRelation(
        "people.person.parents",
        "person",
        "person",
        ("the parents of {}", "{} 's mother and father"),
        ("the children of {}", "{} 's kids"),
        tails=(1, 2),
        share=0.6,
    ),
    WorldRelation(
        "people.person.spouse",
        "person",
        "person",
        ("the spouse of {}", "{} 's partner"),
        share=0.7,
    ),
    WorldRelation("people.person.alma_mater", "person", "university", ()),
    WorldRelation(
        "people.person.date_of_birth",
        "person",
        "year",
        ("the birth year of {}", "the year {} came into the world"),
    ),
    WorldRelation("people.person.religion", "person", "religion", ()),
    WorldRelation("people.person.employment", "person", "employment", (), share=0.8),
    WorldRelation("people.employment.employer", "employment", "company", ()),
    WorldRelation("people.employment.role", "employment", "role", ()),
    WorldRelation("people.employment.since", "employment", "year", ()),
    WorldRelation(
        "film.film.directed_by",
        "film",
        "person",
        ("the director of {}", "the person who directed {}"),
        ("the films directed by {}", "the movies {} made"),
    ),
    WorldRelation(
        "film.film.starring",
        "film",
        "person",
        ("the stars of {}", "the actors in {}"),
        tails=(1, 3),
    ),
    WorldRelation("film.film.genre", "film", "genre", ()),
    WorldRelation("film.film.release_date", "film", "year", ()),
    WorldRelation("film.film.country", "film", "country", ()),
    WorldRelation("film.film.music", "film", "person", ()),
    WorldRelation("film.film.producer", "film", "person", ()),
    WorldRelation("film.film.distributor", "film", "company", ()),
    WorldRelation("film.film.language", "film", "language", ()),
    WorldRelation(
        "book.book.author",
        "book",
        "person",
        ("the author of {}", "the writer of {}"),
        ("the books by {}", "the novels {} wrote"),
    ),
    WorldRelation("book.book.publisher", "book", "company", ()),
    WorldRelation("book.book.publication_date", "book", "year", ()),
    WorldRelation("book.book.genre", "book", "genre", ()),
    WorldRelation("book.book.language", "book", "language", ()),
    WorldRelation("book.book.editor", "book", "person", ()),
    WorldRelation("book.book.illustrator", "book", "person", ()),
    WorldRelation("book.book.translator", "book", "person", ()),
    WorldRelation(
        "organization.organization.founder",
        "company",
        "person",
        ("the founder of {}", "the person who started {}"),
    ),
    WorldRelation("organization.organization.headquarters", "company", "city", ()),
    WorldRelation("education.university.city", "university", "city", ()),
    WorldRelation(
        "location.city.country", "city", "country", ("the country of {}", "the nation {} belongs to")
    ),
    WorldRelation("location.city.mayor", "city", "person", ()),
    WorldRelation(
        "location.country.capital",
        "country",
        "city",
        ("the capital of {}", "{} 's seat of government"),
    ),
    WorldRelation(
        "location.country.official_language",
        "country",
        "language",
        ("the language of {}", "the language spoken in {}"),
    ),
    WorldRelation("event.event.location", "event", "city", ()),
    WorldRelation("event.event.date", "event", "date", ("the date of {}", "the day of {}")),
    WorldRelation(
        "event.event.winner",
        "event",
        "person",
        ("the winner of {}", "the champion of {}"),
        ("the events won by {}", "the contests {} won"),
    ),
    WorldRelation("event.event.runner_up", "event", "person", ()),
    WorldRelation("event.event.sponsor", "event", "company", ()),
    WorldRelation("event.event.host_country", "event", "country", ()),
    WorldRelation("event.event.organizer", "event", "person", ()),
    WorldRelation("event.event.judge", "event", "person", ()),
)

_COMPOUNDS = (
    WorldStep(
        "person",
        "company",
        (Hop("people.person.employment"), Hop("people.employment.employer")),
        ("the employer of {}", "the company {} works for"),
    ),
)

STEPS = (
    *(WorldStep(r.head, r.tail, (Hop(r.name),), r.forward) for r in RELATIONS if r.forward),
    *(WorldStep(r.tail, r.head, (Hop(r.name, True),), r.inverse) for r in RELATIONS if r.inverse),
    *_COMPOUNDS,
)

QUESTION_FORMS = ("what is {} ?", "who or what is {} ?", "name {} .", "i want to know {} .")

# Number of named entities of each type in a world of size 1; 1,700 in total, without dates and years.
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
