"""The schema of the world with every operation.

Unlike the small world's graph, this one is RDF, since it holds numbers and dates: ids are IRIs such as
`world:m.0k3fa` and `world:film.film.directed_by`, and names are labels, which two entities may share.
"""

from __future__ import annotations

from kbqa.datasets.world.quantities import QUANTITIES
from kbqa.datasets.world.schema import Decoy, EntityKind, Grammar, Link, Schema, Tenure

_KINDS = {
    "person": EntityKind("people.person", "person", "people", 420, "person"),
    "film": EntityKind("film.film", "film", "films", 260, "film"),
    "book": EntityKind("book.book", "book", "books", 200, "book"),
    "event": EntityKind("event.event", "event", "events", 120, "event"),
    "city": EntityKind("location.city", "city", "cities", 80, "city"),
    "company": EntityKind("organization.company", "company", "companies", 80, "company"),
    "university": EntityKind("education.university", "university", "universities", 40, "university"),
    "country": EntityKind("location.country", "country", "countries", 24, "country"),
    "language": EntityKind("language.language", "language", "languages", 16, "language"),
    "profession": EntityKind("people.profession", "profession", "professions", 30, "profession"),
    "genre": EntityKind("media.genre", "genre", "genres", 24, "genre"),
    "role": EntityKind("people.role", "role", "roles", 16, "role", is_topic=False),
    "award": EntityKind("award.award", "award", "awards", 40, "award"),
    "employment": EntityKind("people.employment", "job", "jobs", 0, ""),
    "term": EntityKind("government.term", "term", "terms", 0, ""),
}

_LINKS = (
    Link(
        "film.film.directed_by",
        "film",
        ("person",),
        ("the director of {}", "the person who directed {}"),
        ("directed by {}", "that {} directed"),
        ("who directed {}",),
    ),
    Link(
        "film.film.starring",
        "film",
        ("person",),
        ("the stars of {}", "the actors in {}"),
        ("starring {}", "with {} in the cast"),
        ("who starred in {}", "who played in {}"),
        count=(1, 3),
    ),
    Link("film.film.genre", "film", ("genre",), ("the genre of {}",), ("of the genre {}",)),
    Link(
        "film.film.country",
        "film",
        ("country",),
        ("the country where {} was made",),
        ("made in {}", "shot in {}"),
    ),
    Link("film.film.music", "film", ("person",), ("the composer of {}",), ("with music by {}",)),
    Link(
        "book.book.author",
        "book",
        ("person",),
        ("the author of {}", "the writer of {}"),
        ("written by {}", "that {} wrote"),
        ("who wrote {}",),
    ),
    Link(
        "book.book.publisher",
        "book",
        ("company",),
        ("the publisher of {}", "the company that published {}"),
        ("published by {}", "that {} published"),
    ),
    Link("book.book.genre", "book", ("genre",), ("the genre of {}",), ("of the genre {}",)),
    Link(
        "book.book.translator",
        "book",
        ("person",),
        ("the translator of {}",),
        ("translated by {}",),
        share=0.5,
    ),
    Link(
        "people.person.place_of_birth",
        "person",
        ("city",),
        ("the birthplace of {}", "the city where {} was born"),
        ("born in {}", "who were born in {}"),
    ),
    Link(
        "people.person.nationality",
        "person",
        ("country",),
        ("the nationality of {}", "{} 's home country"),
        ("from {}", "who are citizens of {}"),
    ),
    Link(
        "people.person.profession",
        "person",
        ("profession",),
        ("the profession of {}", "what {} does for a living"),
        ("working as {}", "with the profession {}"),
    ),
    Link(
        "people.person.parents",
        "person",
        ("person",),
        ("the parents of {}", "{} 's mother and father"),
        ("with {} as a parent", "who are children of {}"),
        count=(1, 2),
        share=0.5,
    ),
    Link(
        "people.person.alma_mater",
        "person",
        ("university",),
        ("the alma mater of {}", "the university where {} studied"),
        ("who studied at {}", "educated at {}"),
    ),
    Link(
        "people.person.notable_work",
        "person",
        ("film", "book"),
        ("the notable works of {}", "what {} is known for"),
        ("known for {}",),
        ("that {} is known for", "among the notable works of {}"),
        count=(2, 4),
        share=0.5,
    ),
    Link(
        "organization.company.founder",
        "company",
        ("person",),
        ("the founder of {}", "the person who started {}"),
        ("founded by {}", "that {} started"),
        ("who founded {}",),
    ),
    Link(
        "organization.company.headquarters",
        "company",
        ("city",),
        ("the headquarters of {}", "the city where {} is based"),
        ("based in {}", "with headquarters in {}"),
    ),
    Link(
        "education.university.city",
        "university",
        ("city",),
        ("the city of {}", "the city where {} is located"),
        ("located in {}",),
    ),
    Link(
        "location.city.country",
        "city",
        ("country",),
        ("the country of {}", "the nation {} belongs to"),
        ("in {}", "located in {}"),
    ),
    Link(
        "location.country.capital",
        "country",
        ("city",),
        ("the capital of {}", "{} 's seat of government"),
    ),
    Link(
        "location.country.official_language",
        "country",
        ("language",),
        ("the language of {}", "the language spoken in {}"),
        ("where {} is spoken",),
    ),
    Link(
        "event.event.winner",
        "event",
        ("person",),
        ("the winner of {}", "the champion of {}"),
        ("won by {}", "that {} won"),
        ("who won {}",),
    ),
    Link(
        "event.event.location",
        "event",
        ("city",),
        ("the city where {} took place", "the place of {}"),
        ("held in {}", "that took place in {}"),
    ),
    Link(
        "award.award.recipient",
        "award",
        ("person", "film", "book"),
        ("the recipients of {}", "what received {}"),
        ("given to {}",),
        ("honoured with {}", "that received {}"),
        count=(3, 8),
    ),
)

_TENURES = (
    Tenure(
        "employment",
        "people.person.employment",
        "person",
        "people.employment.employer",
        "company",
        "people.employment.from",
        ("the employer of {} {when}", "the company that {} worked for {when}"),
        ("the people employed by {} {when}", "those who worked for {} {when}"),
        also=("people.employment.role", "role"),
    ),
    Tenure(
        "term",
        "location.city.government",
        "city",
        "government.term.mayor",
        "person",
        "government.term.from",
        ("the mayor of {} {when}", "who governed {} {when}"),
        ("the cities governed by {} {when}", "the city with {} as mayor {when}"),
    ),
)

_DECOYS = (
    Decoy("film.director.films", "film.film.directed_by"),
    Decoy("film.actor.films", "film.film.starring"),
    Decoy("book.author.books", "book.book.author"),
    Decoy("people.person.children", "people.person.parents"),
    Decoy("event.champion.victories", "event.event.winner"),
    Decoy("people.founder.companies", "organization.company.founder"),
)

WORLD = Schema(
    namespace="world:",
    kinds=_KINDS,
    links=_LINKS,
    quantities=QUANTITIES,
    grammar=Grammar(
        one=("what is {} ?", "who or what is {} ?", "name {} .", "i want to know {} ."),
        several=("what are {} ?", "which are {} ?", "name {} .", "list {} ."),
        how_many=(
            "how many {} are there ?",
            "count the {} .",
            "what is the number of {} ?",
            "number of {} ?",
        ),
        clause=("tell me {} .", "i want to know {} .", "can you tell me {} ?", "find out {} ."),
        plurals=("parents", "actors", "stars", "notable", "recipients"),
    ),
    rich=("film", "book", "person", "city", "company", "event"),
    tenures=_TENURES,
    decoys=_DECOYS,
    namesakes={"book": "film", "company": "city"},
)
