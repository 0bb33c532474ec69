"""What `expand` lists beside forms: what lies behind a join, and what nodes lack that others have."""

from __future__ import annotations

from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.retrieval.look_ahead import MAX_SHARING
from tests.unit.kg.retrieval.expanding import EX, MANNS, expanding, listed, short


def behind(result, relation):
    """What lies behind a join, "^" before what is followed from tail to head."""
    [join] = [one for one in result.details["expansions"] if f"(R {EX}{relation})" in one["form"]]
    return [f"{'^' if hop['inverse'] else ''}{short(hop['id'])}" for hop in join.get("behind", ())]


def test_a_join_lists_the_relations_of_the_nodes_that_it_leads_to_if_asked(expand_here):
    result = expand_here(None, f"{EX}heat", operations=["join"], ahead=True)
    assert behind(result, "director") == ["^director", "type"]
    assert sorted(behind(result, "star")) == ["^star", "role", "type"]
    assert behind(result, "minutes") == ["^minutes"]
    [role] = (hop for one in result.details["expansions"] for hop in one["behind"] if "role" in hop["id"])
    assert role == {"id": f"{EX}role", "label": f"{EX}role", "inverse": False}
    deeper = expand_here(MANNS, f"{EX}foxx", operations=["join", "max"], ahead=True)
    assert "role" in behind(deeper, "star")
    assert all("behind" not in one for one in deeper.details["expansions"] if one["operation"] == "max")
    unasked = expand_here(None, f"{EX}heat", operations=["join"])
    assert behind(unasked, "star") == []


def test_two_topics_have_joins_with_what_lies_behind_each(expand_here):
    result = expand_here(None, f"{EX}pacino", f"{EX}mann", operations=["join"], ahead=True)
    joins = {short(one["form"]): one["behind"] for one in result.details["expansions"]}
    assert {short(hop["id"]) for hop in joins["(JOIN (R role) pacino)"]} >= {"at", "stint.from"}
    assert {short(hop["id"]) for hop in joins["(JOIN director mann)"]} >= {"star", "minutes"}


def test_of_too_many_relations_behind_those_that_fit_the_question_are_listed(expand_here, monkeypatch):
    monkeypatch.setattr("kbqa.kg.retrieval.look_ahead.MAX_BEHIND", 4)
    result = expand_here(None, f"{EX}heat", question="a role of the star", operations=["join"], ahead=True)
    assert "role" in behind(result, "star")
    assert sum(len(one.get("behind", ())) for one in result.details["expansions"]) <= 4


def missing(result):
    """The joins that lead nowhere, with what lies behind them elsewhere."""
    return {
        short(one["form"]): sorted(short(hop["id"]) for hop in one.get("behind", ()))
        for one in result.details.get("missing", ())
    }


def test_what_others_have_is_listed_as_missing_if_asked(expand_here):
    # Heat and Ali are by the director of Miami Vice, and have a year.
    lacks = f"(JOIN (R {EX}year) {EX}miami)"
    asked = expand_here(None, f"{EX}miami", operations=["join"], missing=True)
    assert short(lacks) in missing(asked)
    assert lacks not in [one["form"] for one in asked.details["expansions"]]
    # A relation that it has in one direction is not missing in the other.
    assert not any("director" in form for form in missing(asked))
    assert "missing" not in expand_here(None, f"{EX}miami", operations=["join"]).details
    assert "missing" not in expand_here(None, f"{EX}miami", operations=["max"], missing=True).details


def test_the_members_of_a_form_lack_what_none_of_them_has(expand_here):
    films = f"(JOIN {EX}star {EX}pacino)"  # Heat, which has all that a film has
    assert missing(expand_here(films, operations=["join"], missing=True)) == {}
    foxx = f"(JOIN (R {EX}star) {EX}ali)"  # a person like Al Pacino, who has roles, and like two authors
    assert missing(expand_here(foxx, operations=["join"], missing=True, ahead=True)) == {
        f"(JOIN (R role) {short(foxx)})": ["at", "role", "stint.from", "stint.to"],
        f"(JOIN director {short(foxx)})": ["director", "minutes", "star", "type", "year"],
        f"(JOIN author {short(foxx)})": ["author", "type"],
    }
    both = f"(JOIN (R {EX}star) (JOIN {EX}director {EX}mann))"
    assert f"(JOIN (R role) {short(both)})" not in missing(expand_here(both, missing=True))


def test_an_endpoint_is_not_asked_what_is_missing(graphs):
    assert missing(expanding(graphs, "endpoint")(None, f"{EX}miami", missing=True)) == {}


def test_an_endpoint_is_not_asked_what_lies_behind(graphs):
    result = expanding(graphs, "endpoint")(None, f"{EX}heat", operations=["join"], ahead=True)
    assert behind(result, "star") == []


def test_a_join_goes_back_to_what_shares_a_node_only_if_that_is_not_too_much():
    films = [f"Film {number}" for number in range(MAX_SHARING + 2)]
    triples = [(film, "genre", "drama") for film in films]
    triples += [(film, "director", "Mann") for film in films[: MAX_SHARING + 1]]
    expand = expanding(FixedGraphs({"toy": OxigraphStore.from_triples(triples)}), "toy")
    for relation, goes_back in (("genre", False), ("director", True)):
        reached = f"(JOIN (R {relation}) `Film 0`)"
        found = expand(reached, "Film 0", ahead=True)
        assert (f"(JOIN {relation} {reached})" in listed(found, "join")) == goes_back
    behind = {
        one["path"][0]["id"]: [(hop["id"], hop["inverse"]) for hop in one["behind"]]
        for one in expand(None, "Film 0", ahead=True).details["expansions"]
        if "behind" in one
    }
    assert behind == {"director": [("director", True)]}


def test_a_relation_that_the_whole_graph_lacks_is_listed_as_missing_if_the_question_asks_for_it(expand_here):
    composed = {"question": "who composed the music of the films?", "operations": ["join"], "missing": True}
    films = f"(JOIN {EX}director {EX}mann)"
    for form, *topics in ((None, f"{EX}miami"), (films, f"{EX}mann")):
        result = expand_here(form, *topics, **composed, ahead=True)
        [lacks] = [one for one in result.details["missing"] if "composer" in one["form"]]
        assert lacks["path"] == [{"id": "composer", "label": "composer", "inverse": False}]
        assert "behind" not in lacks
    unasked = expand_here(None, f"{EX}miami", question=composed["question"], operations=["join"])
    assert "missing" not in unasked.details
    other = expand_here(None, f"{EX}heat", question="who wrote it?", operations=["join"], missing=True)
    assert "missing" not in other.details  # the graph has authors


def test_the_name_of_a_topic_does_not_ask_for_a_relation(expand_here):
    # Miami Vice is no question about a vice president, nor a heat about temperatures.
    asked = expand_here(None, f"{EX}heat", question="when did Heat end?", operations=["join"], missing=True)
    assert "missing" not in asked.details
    asked = expand_here(
        None, f"{EX}miami", question="the heat of Miami Vice", operations=["join"], missing=True
    )
    assert "(JOIN (R temperature) miami)" in missing(asked)


WRITERS = (
    ("Alien", "directed_by", "Scott"),
    ("Alien", "written_by", "Shusett"),
    ("Brazil", "directed_by", "Gilliam"),
    ("Brazil", "written_by", "Stoppard"),
    ("Brazil", "written_by", "Gilliam"),
    ("Stoppard", "brother", "Peter"),
    ("Peter", "employer", "Lloyds"),
    ("Shusett", "brother", "Paul"),
    ("Paul", "employer", "Fox"),
    ("Gilliam", "employer", "Python"),
)


def test_what_others_of_the_same_kind_have_elsewhere_is_missing_if_the_question_asks_for_it():
    expand = expanding(FixedGraphs({"toy": OxigraphStore.from_triples(WRITERS)}), "toy")

    def lacks(question, topic):
        return list(missing(expand(None, topic, question=question, operations=["join"], missing=True)))

    # Gilliam, who shares no film with Scott, has both directed and written.
    assert lacks("what did Scott write?", "Scott") == ["(JOIN written_by Scott)"]
    assert lacks("what did Scott direct?", "Scott") == []
    assert "(JOIN written_by Gilliam)" not in lacks("what did Gilliam write?", "Gilliam")
    # Nobody is employed by somebody who directs.
    assert lacks("what did Lloyds direct?", "Lloyds") == []
    # The brothers have an employer.
    assert "(JOIN (R employer) Shusett)" not in lacks("who employs the brother of Shusett?", "Shusett")
