"""The English that WordNet and lemminflect lack: articles, compounds, mass nouns, units, abbreviations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kbqa.datasets.world.lexicon import NOUN, Inflections, Lexicon


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PREPOSITIONS = _words("about after as at by for from in into of on to under with")
PLACES = _words(
    """
    area city continent country county district location municipality place province region state
    territory town village
    """
)
"""Nouns for what things and people are in."""

MAKING = _words(
    """
    author build compose create design develop direct draw invent issue make manufacture paint produce
    publish record release write
    """
)
"""Verbs for what is done to things, not to people."""
STATES = _words(
    """
    administer associate base chair compose connect contain control employ govern head headquarter house
    include involve lead link locate maintain manage marry operate oversee own power relate run situate
    sponsor station store supervise supply surround use
    """
)
"""Verbs for what lasts, so that "is managed by" is about the present."""
LIVING = _words("bear die educate marry")
"""Verbs for what happens to people."""
ORGANISATIONS = _words(
    """
    client contractor customer dealer distributor employer maker manufacturer operator owner provider
    publisher retailer seller sponsor supplier vendor
    """
)
"""Roles that WordNet has among people, and that organisations have as well."""
OF_PEOPLE = _words("birthplace birthday employer gender job nationality occupation profession religion") | {
    "alma mater"
}
"""Nouns for what people have, beside their relatives."""
SUBJECTS = _words("keyword subject tag theme topic")
"""Nouns for what something is about, each of which people use for another."""

_UNITS: Mapping[str, str] = {
    "mm": "millimetres",
    "cm": "centimetres",
    "m": "metres",
    "km": "kilometres",
    "ft": "feet",
    "mg": "milligrams",
    "g": "grams",
    "kg": "kilograms",
    "t": "tonnes",
    "lb": "pounds",
    "lbs": "pounds",
    "ml": "millilitres",
    "l": "litres",
    "ms": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "secs": "seconds",
    "min": "minutes",
    "mins": "minutes",
    "h": "hours",
    "hrs": "hours",
    "kmh": "km/h",
    "w": "watts",
    "kw": "kilowatts",
    "mw": "megawatts",
    "kwh": "kilowatt hours",
    "v": "volts",
    "a": "amperes",
    "hz": "hertz",
    "mhz": "megahertz",
    "ghz": "gigahertz",
    "kb": "kilobytes",
    "mb": "megabytes",
    "gb": "gigabytes",
    "pct": "percent",
    "usd": "US dollars",
    "eur": "euros",
    "gbp": "pounds",
    "ha": "hectares",
    "sqm": "square metres",
    "sqkm": "square kilometres",
}
_WHOLE_UNITS = frozenset(
    {*_UNITS.values(), "meters", "metres", "kilometers", "centimeters", "millimeters", "miles", "inches"}
    | {"liters", "tons", "dollars", "days", "weeks", "months", "celsius", "degrees"}
)
_SHORT: Mapping[str, str] = {
    "lat": "latitude",
    "long": "longitude",
    "lng": "longitude",
    "lon": "longitude",
    "qty": "quantity",
    "dob": "date of birth",
    "dod": "date of death",
    "pob": "place of birth",
    "num": "number",
    "nr": "number",
    "max": "maximum",
    "min": "minimum",
    "avg": "average",
    "desc": "description",
    "addr": "address",
    "temp": "temperature",
    "pop": "population",
    "org": "organization",
    "dept": "department",
}
_PARTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("equipment", "furniture", "hardware", "information", "news", "advice", "evidence"), "piece"
    ),
    **dict.fromkeys(("software", "machinery", "luggage", "baggage", "research", "music", "art"), "piece"),
    **dict.fromkeys(("clothing", "merchandise", "jewelry", "jewellery"), "item"),
    "staff": "member",
}
_ALIKE = _words("aircraft fish headquarters means series sheep spacecraft species")
# A word that begins with a vowel's sound, or not, against its first letter.
_AN = re.compile(r"hour|honest|honou?r|heir|[FHLMNRSX](?![a-z])|(imdb|mp3|html|sms)\b")
_A = re.compile(r"uni([^nm]|$)|us[ae]|eu|one|ewe|ut[ie]|[U](?![a-z])")
_VOWELS = tuple("aeiouAEIOU")
_COMPOUND = re.compile(r"(birth|death|release|launch|publication|start|end)(place|date|year|day|time)")


def spoken(text: str) -> list[str]:
    """The tokens of a relation's or class's words, with compounds split and abbreviations written out."""
    tokens: list[str] = []
    for token in text.split():
        compound = _COMPOUND.fullmatch(token)
        tokens += compound.groups() if compound else _SHORT.get(token, token).split()
    return tokens


def unit_of(tokens: list[str]) -> tuple[list[str], str]:
    """The words of a relation to numbers without the unit that they end with, and that unit; "" if none."""
    *first, last = tokens
    if len(first) > 1 and first[-1] == "in":
        first.pop()
    if not first or first[-1] in PREPOSITIONS or not is_a_unit(last):
        return tokens, ""
    return first, _UNITS.get(last, last)


def is_person(noun: str, lexicon: Lexicon) -> bool:
    """Whether a noun, by its last word, means people, and hardly organisations."""
    head = noun.split()[-1]
    return head == "person" or (head not in ORGANISATIONS and lexicon.is_person(head))


def is_a_unit(word: str) -> bool:
    return word in _UNITS or word in _WHOLE_UNITS


def singular(noun: str, lexicon: Lexicon, inflections: Inflections) -> str:
    """A noun in the singular; of several words, the one before "of" or else the last one is inflected."""
    first, last, rest = _head(noun)
    if last in _ALIKE or last in _PARTS:
        return noun
    if last == "people":
        return f"{first}person{rest}"
    if last.endswith("s") and last[:-1].isupper():
        return f"{first}{last[:-1]}{rest}"
    lemmas = (*inflections.lemmas(last, NOUN), *_without_s(last))
    known = (lemma for lemma in lemmas if lexicon.knows(lemma, NOUN))
    return f"{first}{next(known, last)}{rest}"


def plural(noun: str, inflections: Inflections) -> str:
    """A noun in the plural: members of staff, bills of material, people, BOMs."""
    first, last, rest = _head(noun)
    if last in _ALIKE:
        return noun
    if last == "person":
        return f"{first}people{rest}"
    return f"{first}{last}s{rest}" if last.isupper() else f"{first}{inflections.of(last, 'NNS')}{rest}"


def countable(noun: str) -> str:
    """A noun of which there can be several: piece of hardware, member of staff."""
    first, last, rest = _head(noun)
    part = _PARTS.get(last, "")
    return f"{part} of {first}{last}{rest}" if part else noun


def with_article(noun: str) -> str:
    """A noun after "a" or "an"."""
    begins = noun.startswith(_VOWELS)
    sounds = _AN.match(noun) is not None if not begins else _A.match(noun) is None
    return f"{'an' if sounds else 'a'} {noun}"


def is_plural(noun: str, lexicon: Lexicon, inflections: Inflections) -> bool:
    """Whether a noun is a plural that has a singular."""
    return singular(noun, lexicon, inflections) != noun


def _head(noun: str) -> tuple[str, str, str]:
    """A noun's inflected word, with what is before and after it."""
    tokens = noun.split()
    at = tokens.index("of") - 1 if "of" in tokens[1:] else len(tokens) - 1
    before, after = " ".join(tokens[:at]), " ".join(tokens[at + 1 :])
    return f"{before} " if before else "", tokens[at], f" {after}" if after else ""


def _without_s(token: str) -> tuple[str, ...]:
    """What lemminflect does not find: calories, calorie."""
    return (token[:-1],) if token.endswith("s") and not token.endswith("ss") else ()
