"""Films drawn by hand, and `expand` over them."""

from __future__ import annotations

from kbqa.kg.actions import Action
from kbqa.kg.tools import LocalGraphTools

EX = "http://ex.org/"


XSD = "http://www.w3.org/2001/XMLSchema#"


TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:heat a :Film ; rdfs:label "Heat" ; :director :mann ; :star :pacino ; :minutes 170 ; :year "1995"^^xsd:gYear .
:ali a :Film ; rdfs:label "Ali" ; :director :mann ; :star :foxx ; :minutes 157 ; :year "2001"^^xsd:gYear .
:miami a :Film , :Remake ; rdfs:label "Miami Vice" ; :director :mann ; :star :foxx ; :minutes 132 .
:play a :Play ; rdfs:label "Heat" ; :author :shaw .
:mann a :Person ; rdfs:label "Michael Mann" . :shaw a :Person ; rdfs:label "Shaw" .
:pacino a :Person ; rdfs:label "Al Pacino" ; :role :stint1 , :stint2 .
:foxx a :Person ; rdfs:label "Jamie Foxx" .
:stint1 :at :studio ; :stint.from "1990"^^xsd:gYear ; :stint.to "1999"^^xsd:gYear .
:stint2 :at :theatre ; :stint.from "2003"^^xsd:gYear .
:Film rdfs:label "film" . :Play rdfs:label "stage play" . :director rdfs:label "directed by" .
"""


QUESTION = "which is the longest film?"


MANNS = f"(JOIN {EX}director {EX}mann)"


SELECTIONS = {"keep", "max", "min", "gt", "ge", "lt", "le", "at", "type"}


def expanding(graphs, name):
    tools = LocalGraphTools(graphs, deadline_s=60)

    def expand(form=None, *topics, question=QUESTION, graph=None, **arguments):
        arguments = {"question": question, "topics": list(topics), **arguments}
        if form is not None:
            arguments["form"] = form
        [result] = tools.execute(name, [Action("expand", arguments)], graph=graph)
        return result

    return expand


def short(text):
    return text.replace(EX, "").replace("http://www.w3.org/1999/02/22-rdf-syntax-ns#", "")


def listed(result, *operations):
    """The forms of some operations."""
    return [
        short(one["form"])
        for one in result.details["expansions"]
        if not operations or one["operation"] in operations
    ]


def names(result):
    return [short(item.id) for item in result.items]
