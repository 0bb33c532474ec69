"""Questions that are made from a graph alone."""

from __future__ import annotations

import random
import re
from collections import Counter
from statistics import median

import pytest

from kbqa.datasets.from_graph import make_questions, reading
from kbqa.datasets.from_graph.describing import describe
from kbqa.datasets.from_graph.kinds import member_noun
from kbqa.datasets.world.lexicon import Inflections
from kbqa.errors import DatasetError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.ranking.encoders import words
from kbqa.logical_forms.algebra import Ask, Count, relations
from kbqa.logical_forms.s_expression import parse_s_expression
from tests.unit.datasets.world.wordnet import lexicon_or_skip

K = 5  # times the median use that a relation may have
PREFIXES = """@prefix : <http://films.example/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""


def film_facts(count=40):
    rng = random.Random(5)
    for number in range(count):
        film = f"Tale {number}"
        yield film, "directed_by", f"Person{rng.randrange(12)} Smith"
        yield film, "release_year", str(1950 + rng.randrange(12))
        yield film, "has_genre", f"Genre{rng.randrange(5)}"
        for _ in range(2):
            yield film, "starred_actors", f"Person{rng.randrange(12)} Smith"


def turtle():
    """The same as RDF, with classes and a number."""
    lines = [PREFIXES]
    for head, relation, tail in film_facts():
        ends = [f":{name.replace(' ', '_')}" for name in (head, f"{relation} {tail}")]
        ends[1] = f":{tail.replace(' ', '_')}" if "Smith" in tail else ends[1]
        kind = {"has_genre": "Genre", "release_year": "Year"}.get(relation, "Person")
        lines.append(f'{ends[0]} a :Film ; rdfs:label "{head}" ; :{relation} {ends[1]} .')
        lines.append(f'{ends[1]} a :{kind} ; rdfs:label "{tail}" .')
    lines += [f":Tale_{n} :length {60 + 7 * n % 90} ; :P57 :Tale_{(n + 1) % 40} ." for n in range(40)]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def named():
    lexicon_or_skip()
    return OxigraphStore.from_triples(film_facts())


@pytest.fixture(scope="module")
def classed(tmp_path_factory):
    lexicon_or_skip()
    home = tmp_path_factory.mktemp("home")
    (home / "films.ttl").write_text(turtle(), encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load("films", home / "films.ttl")
    yield catalog.get("films")
    catalog.close()


def check(made, store):
    """Whether every question has the answers that the store finds, and relations are spread."""
    check_answers(made.questions, store)
    uses = Counter(name for one in made.questions for name in relations(parse_s_expression(one.form)))
    assert max(uses.values()) <= K * median(uses.values())


def check_answers(questions, store):
    """Whether every question has the answers that the store finds, and all with the same words the same."""
    answers = {}
    for question in questions:
        form = parse_s_expression(question.form)
        page = store.members(form.source if isinstance(form, Count | Ask) else form, limit=1_000)
        found = [str(page.total)] if isinstance(form, Count) else [item.label for item in page.items]
        if isinstance(form, Ask):
            label = store.item(form.node.id).label
            found = [str(label in found).lower()]
        said = [(store.item(one).label if store.item(one) else one) for one in question.answers]
        assert sorted(said) == sorted(found), question
        assert set(question.topic_entities) <= set(store.items(question.topic_entities))
        assert answers.setdefault(question.text, question.answers) == question.answers


def test_a_graph_of_names_gives_verified_questions_and_kinds_named_after_relations(named):
    made = make_questions(named, "films", 120, called={"directed_by": "film"})
    assert len(made.questions) == 120
    check(made, named)
    texts = " ".join(question.text for question in made.questions)
    assert "films" in texts
    assert "people" in texts  # directors and actors
    assert {question.operation for question in made.questions} >= {"path", "intersection", "count"}
    assert made.questions == make_questions(named, "films", 120, called={"directed_by": "film"}).questions


def test_a_graph_with_classes_and_numbers_gives_superlatives_and_comparisons(classed):
    made = make_questions(classed, "films", 150)
    check(made, classed)
    operations = {question.operation for question in made.questions}
    assert operations >= {"path", "intersection", "superlative", "comparison", "count"}
    assert made.wordless == (next(one.id for one in classed.relations() if one.id.endswith("P57")),)


def test_years_that_are_names_are_compared_and_named(named):
    made = make_questions(named, "films", 200, called={"directed_by": "film"})
    about = [one for one in made.questions if "release_year" in one.form]
    assert {one.operation for one in about} >= {"path", "superlative", "comparison"}
    [compared, *_] = [one for one in about if one.operation == "comparison"]
    assert "^^http://www.w3.org/2001/XMLSchema#decimal" in compared.form
    assert any("JOIN release_year 19" in one.form for one in about)  # the films of a year
    records = " ".join(one.text for one in about if one.operation == "superlative")
    assert "latest release year" in records or "first release year" in records
    assert "greatest release year" not in records


def test_kinds_have_the_nouns_of_most_of_their_members_or_general_ones():
    lexicon = lexicon_or_skip()
    facts = [
        (film, {"starred_actors": "starring"}.get(relation, relation), tail)
        for film, relation, tail in film_facts()
    ]
    facts += [(f"Person{number} Smith", "born_in", f"Town{number % 3}") for number in range(40)]

    def nouns(kg="", **called):
        rng = random.Random(1)
        graph = reading.read_graph(OxigraphStore.from_triples(facts), rng)
        described = describe(graph, lexicon, Inflections(), rng, called, kg)
        return {kind.singular for kind in described.facts.schema.kinds.values()}

    # A film that stars people is no star, and most of the people direct nothing.
    assert nouns() == {"thing", "person", "genre", "year", "place"}
    assert nouns(directed_by="film", born_in="artist") == {"film", "artist", "genre", "year", "place"}
    # The name of a graph names what most facts are about, unless something else does.
    assert nouns("films") == {"film", "person", "genre", "year", "place"}
    assert nouns("films", directed_by="movie") == {"movie", "person", "genre", "year", "place"}
    assert nouns("genres") == {"thing", "person", "genre", "year", "place"}


def test_a_film_that_stars_people_is_not_called_their_star():
    lexicon, rng = lexicon_or_skip(), random.Random(1)
    renamed = {"starred_actors": "starring", "directed_by": "written_by"}
    facts = [(film, renamed.get(relation, relation), tail) for film, relation, tail in film_facts()]
    graph = reading.read_graph(OxigraphStore.from_triples(facts), rng)
    phrases = ""
    for seed in range(5):  # each draws some of the phrases
        described = describe(graph, lexicon, Inflections(), random.Random(seed), {}, "films")
        phrases += repr(described.facts.schema)
    assert re.search(r"\bwriters? of|'s writers?\b", phrases)
    assert not re.search(r"\bstars? of|'s stars?\b", phrases)
    assert "who starred in" in phrases
    assert "what starred in" not in phrases


def test_questions_that_are_trivial_are_dropped():
    lexicon_or_skip()
    facts = list(film_facts())
    facts += [(f"Tale {number}", "series", "Tale") for number in range(10)]  # its name gives it away
    store = OxigraphStore.from_triples(facts)
    made = make_questions(store, "films", 400)
    assert made.dropped["the question names the answer"] > 0
    assert made.dropped["a shorter question has the same answers"] > 0
    for question in made.questions:
        if question.operation in ("boolean", "count"):
            continue
        labels = [item.label for item in store.items(question.answers).values()]
        assert not any(f" {words(label)} " in f" {words(question.text)} " for label in labels), question
        assert not set(question.answers) & set(question.topic_entities)
        hops = question.path
        if len(hops) == 3 and hops[0].relation == hops[1].relation == hops[2].relation:
            assert hops[0].relation == "starred_actors"  # the others lead back to the same node


def test_questions_that_differ_in_case_and_punctuation_only_are_the_same():
    lexicon_or_skip()
    facts = [("Heat !", "directed_by", "Ann Roe"), ("heat", "directed_by", "Bo Lee")]
    facts += [("Heat !", "has_genre", "Crime"), ("heat", "has_genre", "Drama")]
    made = make_questions(OxigraphStore.from_triples(facts), "films", 100)
    said = [words(question.text) for question in made.questions]
    assert len(set(said)) == len(said)
    assert made.dropped["same words, other answers"] > 0
    assert made.dropped["another question says the same"] > 0


@pytest.mark.parametrize(
    ("kg", "noun"),
    [
        *(("films", "film"), ("Movies", "movie"), ("companies", "company")),
        *(("world", ""), ("metaqa", ""), ("films-2", ""), ("physics", ""), ("series", ""), ("triples", "")),
    ],
)
def test_a_graph_is_about_its_name_if_that_is_a_plural(kg, noun):
    assert member_noun(kg, lexicon_or_skip(), Inflections()) == noun


def test_an_untyped_graph_of_films_asks_about_films_and_says_so(named):
    made = make_questions(named, "films", 120)
    texts = " ".join(question.text for question in made.questions)
    assert "films" in texts.split()
    assert not {"thing", "things"} & set(texts.split())
    relation, noun = made.after_graph
    assert (relation in {"directed_by", "release_year", "has_genre", "starred_actors"}, noun) == (
        True,
        "film",
    )
    assert make_questions(named, "films", 5, called={"directed_by": "film"}).after_graph is None


def test_a_superlative_says_by_which_of_two_quantities():
    lexicon_or_skip()
    ships = [(f"Ship {n}", "has_flag", f"Flag{n % 4}") for n in range(40)]
    lengths = [(f"Ship {n}", "length", str(100 + 7 * n % 90)) for n in range(40)]
    durations = [(f"Ship {n}", "duration", str(10 + 11 * n % 70)) for n in range(40)]
    for facts, is_clear in ((lengths, True), (lengths + durations, False)):
        made = make_questions(OxigraphStore.from_triples(ships + facts), "ships", 150)
        texts = " ".join(one.text for one in made.questions if one.operation in ("superlative", "comparison"))
        unnamed = re.search(r"(longest|shortest|longer|shorter)(?! (length|duration))", texts)
        assert (unnamed is not None) == is_clear
        assert "length" in texts


def test_the_running_time_of_a_film_is_long_or_short():
    lexicon_or_skip()
    facts = [*film_facts(), *((f"Tale {n}", "running_time", str(80 + 7 * n % 90)) for n in range(40))]
    made = make_questions(
        OxigraphStore.from_triples(facts),
        "films",
        250,
        called={"directed_by": "film"},
    )
    texts = " ".join(one.text for one in made.questions if one.operation == "superlative")
    assert {"longest", "shortest"} <= set(texts.split())


def test_the_query_of_a_question_finds_its_answers(classed):
    made = make_questions(classed, "films", 40)
    for question in made.questions:
        assert classed.query(question.sparql, deadline_s=30).rows >= 1


def test_of_a_relation_with_many_pairs_a_part_is_read_and_answers_stay_those_of_the_graph(named, monkeypatch):
    monkeypatch.setattr(reading, "_PAGE", 50)
    made = make_questions(named, "films", 30, max_pairs=50, called={"directed_by": "film"})
    assert made.cut == ("starred_actors",)
    check_answers([question for question in made.questions if "starred_actors" in question.form], named)


def test_a_graph_without_words_or_names_is_refused(named):
    with pytest.raises(DatasetError, match="no relation of the graph has words in English"):
        make_questions(OxigraphStore.from_triples([("a", "P57", "b"), ("b", "P58", "c")]), "codes", 5)
    with pytest.raises(DatasetError, match='no relation "sings"'):
        make_questions(named, "films", 5, called={"sings": "bird"})


def test_a_graph_of_a_single_fact_gives_the_few_questions_that_it_has():
    lexicon_or_skip()
    store = OxigraphStore.from_triples([("Heat", "directed by", "Michael Mann")])
    made = make_questions(store, "one", 50)
    assert 0 < len(made.questions) < 50
    check_answers(made.questions, store)


def test_missing_words_say_what_to_install(named, monkeypatch, tmp_path):
    monkeypatch.setenv("KBQA_WORDNET", str(tmp_path))
    with pytest.raises(DatasetError, match="apt-get install wordnet-base"):
        make_questions(named, "films", 5)


def test_nobody_is_asked_about_nodes_that_have_only_an_id() -> None:
    lexicon_or_skip()
    facts = [*film_facts(), *((f"Person{n} Smith", "employment", f"m.0{n:03}x") for n in range(12))]
    facts += [(f"m.0{n:03}x", "employer", f"Company{n % 3}") for n in range(12)]
    made = make_questions(OxigraphStore.from_triples(facts), "films", 150, seed=2)
    assert not [one.text for one in made.questions if "m.0" in one.text or "m.0" in " ".join(one.answers)]
