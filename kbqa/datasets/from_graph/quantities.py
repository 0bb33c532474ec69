"""English phrases for a relation to numbers or dates: they name its values and compare them."""

from __future__ import annotations

from kbqa.datasets.from_graph import english
from kbqa.datasets.from_graph.english import with_article
from kbqa.datasets.from_graph.nouns import Nouns, agreeing
from kbqa.datasets.from_graph.verbs import Happens, Verb
from kbqa.datasets.from_graph.wording import Reader, Wording
from kbqa.datasets.world.lexicon import Inflections
from kbqa.datasets.world.measures import MEASURES
from kbqa.datasets.world.phrases import Party
from kbqa.datasets.world.schema import Quantity
from kbqa.kg.sparql.dates import DATE_TYPES
from kbqa.logical_forms.algebra import Comparator, Extreme

_MEASURES = {
    **dict.fromkeys(("playing time", "run time", "running time", "runtime"), "duration"),
    "altitude": "height",
    "elevation": "height",
    "mass": "weight",
}
_HOW = {
    "age": "old",
    "depth": "deep",
    "duration": "long",
    "height": "high",
    "length": "long",
    "price": "expensive",
    "size": "large",
    "speed": "fast",
    "weight": "heavy",
    "width": "wide",
}


def describe_quantity(
    wording: Wording,
    name: str,
    head: str,
    of: Party,
    datatype: str,
    reader: Reader,
    inflections: Inflections,
) -> Quantity:
    """A relation to numbers or dates, with phrases that name and compare them; years are dates.

    Args:
        head: key of the kind that has it.
        datatype: full IRI.
    """
    if wording.shape == "circumstance":
        return _day(wording, name, head, Nouns.of(of), datatype, reader, inflections)
    if datatype in DATE_TYPES or wording.word.split()[-1] == "year":
        return _date(wording, name, head, datatype)
    if wording.is_counted:
        return _count(wording, name, head, datatype, inflections)
    return _number(wording, name, head, datatype, inflections)


def _day(
    wording: Wording,
    name: str,
    head: str,
    of: Nouns,
    datatype: str,
    reader: Reader,
    inflections: Inflections,
) -> Quantity:
    """When something happens."""
    verb = Verb.of(wording, inflections)
    happens = Happens.of(wording, verb, reader)
    noun = wording.noun or "date"
    acted, p = f"{reader.act(wording.word)} {noun}", "in" if noun == "year" else "on"

    def compared(rest: str) -> tuple[str, ...]:
        relative = f"{of.that} {happens.finite_a} {rest}"
        return (f"{happens.participle} {rest}", relative) if happens.participle else (relative,)

    extremes: dict[Extreme, tuple[str, ...]] = {}
    if wording.word == "bear":
        extremes = {Extreme.MAX: ("youngest",), Extreme.MIN: ("oldest",)}
    elif happens.participle:
        done = happens.participle
        extremes = {
            Extreme.MAX: ("latest", "most recent", f"most recently {done}", f"last {done}"),
            Extreme.MIN: ("earliest", f"first {done}"),
        }
    return Quantity(
        name,
        head,
        datatype,
        0,
        0,
        (f"the {agreeing(acted, english.plural(acted, inflections))} of {{}}", f"{{name}} 's {acted}"),
        extremes,
        {
            Comparator.GT: compared("after {}"),
            Comparator.LT: compared("before {}"),
            Comparator.GE: compared("in {} or later" if p == "in" else "on or after {}"),
            Comparator.LE: compared("in {} or earlier" if p == "in" else "on or before {}"),
        },
        records={
            Extreme.MAX: (f"latest {acted}", f"most recent {acted}"),
            Extreme.MIN: (f"earliest {acted}",),
        },
        asks=(*(f"when {happens.ask_s}",) * 3, f"{p} which {noun} {happens.ask_s}"),
        whether=(f"{happens.ask_s} {p} {{e}}",),
    )


def _count(wording: Wording, name: str, head: str, datatype: str, inflections: Inflections) -> Quantity:
    """How many things of a sort something has."""
    many = english.plural(wording.word, inflections)
    return Quantity(
        name,
        head,
        datatype,
        0,
        0,
        (f"the {{a:number|numbers}} of {many} of {{}}",),
        {},
        {
            comparator: (f"with {bound} {{}} {many}", f"that have {bound} {{}} {many}")
            for comparator, bound in {
                Comparator.GT: "more than",
                Comparator.LT: "fewer than",
                Comparator.GE: "at least",
                Comparator.LE: "at most",
            }.items()
        },
        records={
            Extreme.MAX: (f"most {many}", f"highest number of {many}"),
            Extreme.MIN: (f"fewest {many}", f"lowest number of {many}"),
        },
        asks=(f"how many {many} {{s:does|do}} {{}} have",),
        whether=(f"{{s:does|do}} {{}} have {{e}} {many}",),
    )


def _number(wording: Wording, name: str, head: str, datatype: str, inflections: Inflections) -> Quantity:
    """A measure."""
    noun, unit = wording.word, wording.unit
    some, value = with_article(noun), f"{{}} {unit}".rstrip()
    measure = _MEASURES.get(noun, noun)
    is_time = measure == "duration" or noun.split()[-1] == "time"
    adjectives = MEASURES.get(measure)
    bounds = {
        Comparator.GT: ("more than", "above"),
        Comparator.LT: ("less than", "below"),
        Comparator.GE: ("at least",),
        Comparator.LE: ("at most",),
    }
    compared = {
        comparator: tuple(
            clause
            for bound in said
            for clause in (f"whose {noun} is {bound} {value}", f"with {some} of {bound} {value}")
            if bound not in ("above", "below") or clause.startswith("whose")
        )
        for comparator, said in bounds.items()
    }
    extremes = {}
    either = agreeing(noun, english.plural(noun, inflections))
    asks = [f"what {{a:is|are}} the {either} of {{}}"] * 2
    if unit:
        asks += [f"what is the {noun} of {{name}} in {unit}"]
    if adjectives is not None:
        extremes = {Extreme.MAX: adjectives.most, Extreme.MIN: adjectives.least}
        compared[Comparator.GT] += (f"that {{a:is|are}} {adjectives.more[0]} than {value}",)
        compared[Comparator.LT] += (f"that {{a:is|are}} {adjectives.less[0]} than {value}",)
        if how := _HOW.get(measure):
            asks.append(f"how {how} {{s:is|are}} {{}}")
    return Quantity(
        name,
        head,
        datatype,
        0,
        0,
        (f"the {either} of {{}}", f"{{name}} 's {either}"),
        extremes,
        compared,
        records={
            Extreme.MAX: (f"longest {noun}",) if is_time else (f"highest {noun}", f"greatest {noun}"),
            Extreme.MIN: (f"shortest {noun}",) if is_time else (f"lowest {noun}", f"smallest {noun}"),
        },
        asks=tuple(asks),
        whether=(f"is the {noun} of {{}} {{e}}" + (f" {unit}" if unit else ""),),
    )


def _date(wording: Wording, name: str, head: str, datatype: str) -> Quantity:
    """A date or year that has a name, and is not when something happens."""
    noun = wording.word
    some = with_article(noun)
    return Quantity(
        name,
        head,
        datatype,
        0,
        0,
        (f"the {noun} of {{}}", f"{{name}} 's {noun}"),
        {},
        {
            Comparator.GT: (f"whose {noun} is after {{}}", f"with {some} after {{}}"),
            Comparator.LT: (f"whose {noun} is before {{}}", f"with {some} before {{}}"),
            Comparator.GE: (f"whose {noun} is {{}} or later", f"with {some} of {{}} or later"),
            Comparator.LE: (f"whose {noun} is {{}} or earlier", f"with {some} of {{}} or earlier"),
        },
        records={
            Extreme.MAX: (f"latest {noun}", f"most recent {noun}"),
            Extreme.MIN: (f"earliest {noun}",),
        },
        asks=(f"what is the {noun} of {{}}",),
        whether=(f"is the {noun} of {{}} {{e}}",),
    )
