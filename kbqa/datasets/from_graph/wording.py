"""What the words of a relation mean in English: a verb, a role, a sort or a circumstance.

directed by              verb, reversed: the tail directs the head
manages                  verb: the head manages the tail
starred actors           role: the tail is an actor of the head
author of                role, reversed: the head is the author of the tail
has genre                sort, if the tails are called genres; otherwise a role
release year, born in    circumstance: when or where the head was released, was born
compatible with          adjective
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from kbqa.datasets.world.lexicon import NOUN, VERB, Inflections, Lexicon
from kbqa.datasets.world.measures import day, number
from kbqa.datasets.world.phrases import Party, Phrases, Phrasing
from kbqa.datasets.world.schema import Quantity
from kbqa.kg.sparql.dates import DATE_TYPES
from kbqa.logical_forms.algebra import Comparator, Extreme

Shape = Literal["verb", "role", "sort", "circumstance", "adjective"]

_LEADING = frozenset({"has", "have", "had", "is", "was", "are", "were", "be", "the", "a", "an", "in", "with"})
_PREPOSITIONS = frozenset(
    {"in", "on", "at", "by", "for", "to", "from", "with", "of", "into", "under", "as", "about"}
)
_TIMES, _PLACES = frozenset({"year", "date", "day", "time"}), frozenset({"place", "location"})
_WHERE_OR_WHEN = frozenset({"in", "on", "at"})
_DURATIONS = frozenset({"running time", "run time", "playing time"})
# Verbs of what WordNet does not relate to its verb, or relates to another.
_VERBS = {"birth": "bear"}
_ACTS = {"bear": "birth"}


@dataclass(frozen=True, slots=True)
class Wording:
    """How a relation is read.

    Attributes:
        word: the verb ("direct", "work for"), the noun or the adjective ("compatible with").
        is_reversed: whether the relation leads from what is acted on, or from what has the role.
        noun: of a circumstance, what the relation asks for: year, date, place.
    """

    shape: Shape
    word: str
    is_reversed: bool = False
    noun: str = ""


class Reader:
    """Reads the words of relations."""

    def __init__(self, lexicon: Lexicon, inflections: Inflections) -> None:
        self._lexicon, self._inflect = lexicon, inflections

    def read(self, text: str) -> Wording | None:
        """How the words of a relation are read; None if none of them is English."""
        tokens = text.split()
        names_what_is_had = tokens[:1] in (["has"], ["have"], ["in"], ["with"])  # has tags: no verb
        while len(tokens) > 1 and tokens[0] in _LEADING:
            tokens = tokens[1:]
        if not tokens or any(token[0].isdigit() for token in tokens):
            return None
        # WordNet's adjectives are not read: a word before a preposition counts as one (eligible for).
        is_adjective = len(tokens) > 1 and tokens[-1] in _PREPOSITIONS
        if not is_adjective and not any(map(self._is_word, tokens)):
            return None
        first, last = tokens[0], tokens[-1]
        if len(tokens) > 1 and last in _PREPOSITIONS:
            return self._before_preposition(tokens[:-1], last)
        if len(tokens) == 1 and not names_what_is_had and (verb := self._verb(first)):
            is_participle = self._inflect.of(verb, "VBN") == first
            return Wording("verb", verb, is_reversed=is_participle)
        if len(tokens) == 3 and tokens[1] == "of":
            tokens = [last, first]  # place of birth, birth place
            first, last = tokens
        noun = self._singular(tokens)
        if len(tokens) == 2 and last in _TIMES | _PLACES and (verb := self._act(first)):
            return Wording("circumstance", verb, noun=last)
        if len(tokens) == 2 and self._participle(first) and self._lexicon.is_person(noun):
            noun = noun.split()[-1]  # starred actors
        return Wording("role", noun)

    def noun_of_tails(self, wording: Wording) -> str:
        """What the tails are called; "" if the words do not say."""
        match wording.shape:
            case "role" | "sort":
                return "" if wording.is_reversed else wording.word
            case "circumstance":
                return wording.noun
            case "verb" if wording.is_reversed:
                return self.noun_of_agents(wording.word)
        return ""

    def noun_of_heads(self, wording: Wording) -> str:
        """What the heads are called; "" if the words do not say.

        A verb that is its own noun says nothing: a film starring someone is no star.
        """
        if wording.shape == "role" and wording.is_reversed:
            return wording.word
        agent = self.noun_of_agents(wording.word) if wording == Wording("verb", wording.word) else ""
        return "" if agent == wording.word else agent

    def noun_of_agents(self, verb: str) -> str:
        """Who does what a verb says: director, of direct; "" if there is no word."""
        spelled = (f"{verb}or", f"{verb}er", f"{verb.removesuffix('e')}er", f"{verb.removesuffix('e')}or")
        known = (noun for noun in spelled if self._lexicon.is_person(noun))
        return self._lexicon.agent(verb) or next(known, "")

    def act(self, verb: str) -> str:
        """An act as a noun: publication, of publish."""
        if verb in _ACTS or self._lexicon.knows(verb, NOUN):
            return _ACTS.get(verb, verb)  # a release
        return self._lexicon.act(verb) or self._inflect.of(verb, "VBG")

    def _before_preposition(self, tokens: list[str], preposition: str) -> Wording | None:
        (*_, first) = tokens
        verb = self._participle(first)
        if preposition == "by" and verb:
            return Wording("verb", verb, is_reversed=True)
        if preposition == "of" and self._lexicon.knows(self._singular(tokens).split()[-1], NOUN):
            return Wording("role", self._singular(tokens), is_reversed=True)
        if preposition in _WHERE_OR_WHEN and verb:
            return Wording("circumstance", verb)
        if len(tokens) == 1 and (verb := self._verb(first)) and not self._participle(first):
            return Wording("verb", f"{verb} {preposition}")
        return Wording("adjective", " ".join([*tokens, preposition]))

    def _is_word(self, token: str) -> bool:
        lemmas = (token, *self._inflect.lemmas(token, VERB), *self._inflect.lemmas(token, NOUN))
        return len(token) > 2 and any(
            self._lexicon.knows(lemma, part) for lemma in lemmas for part in (NOUN, VERB)
        )

    def _participle(self, token: str) -> str:
        """The verb of which a token is the participle; "" if it is none."""
        for lemma in self._inflect.lemmas(token, VERB):
            if lemma != token and self._lexicon.knows(lemma, VERB) and not token.endswith(("s", "ing")):
                return lemma
        return ""

    def _verb(self, token: str) -> str:
        """The verb of which a token is a form, unless it is rather a noun; "" if it is none."""
        nouns = max(
            (self._lexicon.count(lemma, NOUN) for lemma in self._inflect.lemmas(token, NOUN)), default=-1
        )
        for lemma in self._inflect.lemmas(token, VERB):
            if (
                lemma != token
                and self._lexicon.knows(lemma, VERB)
                and self._lexicon.count(lemma, VERB) > nouns
            ):
                return lemma
        return ""

    def _act(self, token: str) -> str:
        return _VERBS.get(token) or self._participle(token) or self._lexicon.verb_of(token) or ""

    def _singular(self, tokens: list[str]) -> str:
        *first, last = tokens
        known = (lemma for lemma in self._inflect.lemmas(last, NOUN) if self._lexicon.knows(lemma, NOUN))
        return " ".join([*first, next(known, last)])


def phrases_of(
    wording: Wording, phrasing: Phrasing, reader: Reader, head: Party, tail: Party
) -> tuple[Phrases, Phrases]:
    """Phrases for the tails of a head, and for the heads of a tail."""
    word = wording.word
    match wording.shape:
        case "verb":
            agent, patient = (tail, head) if wording.is_reversed else (head, tail)
            # A film that stars somebody is not the star of anybody.
            names_agent = agent.is_person or reader.noun_of_agents(word) != word
            patients, agents = phrasing.of_verb(word, agent, patient, names_agent=names_agent)
            return (agents, patients) if wording.is_reversed else (patients, agents)
        case "circumstance":
            is_time = wording.noun in _TIMES or tail.kind.singular in _TIMES
            noun = wording.noun or ("year" if is_time else "place")
            adverb = "when" if is_time else "where"
            return phrasing.of_circumstance(word, reader.act(word), head, noun=noun, adverb=adverb)
        case "adjective":
            return _of_adjective(word, head, tail)
        case "sort":
            return phrasing.of_sort(word, head, tail)
    if wording.is_reversed:
        heads, tails = phrasing.of_role(word, tail, head)
        return tails, heads
    if word == tail.kind.singular and not tail.is_person:
        return phrasing.of_sort(word, head, tail)
    return phrasing.of_role(word, head, tail)


def quantity_of(
    wording: Wording,
    name: str,
    head: str,
    datatype: str,
    reader: Reader,
    inflections: Inflections,
    rng: random.Random,
) -> Quantity:
    """A relation to numbers or dates, with phrases that name and compare them; years are dates.

    Args:
        datatype: full IRI.
    """
    acted = " ".join((reader.act(wording.word), wording.noun)).strip()
    noun = wording.word if wording.shape == "role" else acted
    if datatype not in DATE_TYPES and noun.split()[-1:] != ["year"]:
        return number(name, noun, head, rng, "duration" if noun in _DURATIONS else "")
    if datatype in DATE_TYPES and wording.shape == "circumstance":
        done, act = inflections.of(wording.word, "VBN"), reader.act(wording.word)
        return day(name, base=act, done=done, noun=wording.noun or "date", head=head, rng=rng)
    return Quantity(
        name,
        head,
        datatype,
        0,
        0,
        (f"the {noun} of {{}}", f"{{}} 's {noun}", f"what the {noun} of {{}} is"),
        {},
        {
            Comparator.GT: (f"whose {noun} is after {{}}", f"with a {noun} later than {{}}"),
            Comparator.LT: (f"whose {noun} is before {{}}", f"with a {noun} earlier than {{}}"),
            Comparator.GE: (f"whose {noun} is {{}} or later", f"with a {noun} not before {{}}"),
            Comparator.LE: (f"whose {noun} is {{}} or earlier", f"with a {noun} not after {{}}"),
        },
        records={
            Extreme.MAX: (f"latest {noun}", f"most recent {noun}"),
            Extreme.MIN: (f"earliest {noun}", f"first {noun}"),
        },
    )


def _of_adjective(word: str, head: Party, tail: Party) -> tuple[Phrases, Phrases]:
    """Phrases for what something is compatible with, and for what is compatible with it."""
    heads, tails = head.kind.plural, tail.kind.plural
    return (
        Phrases(
            (f"the {tails} that {{}} is {word}", f"what {{}} is {word}"),
            (f"which {tails} is {{}} {word}", f"what is {{}} {word}"),
            (f"that {{}} is {word}",),
            (f"the {heads} {word} the same {tails} as {{}}",),
        ),
        Phrases(
            (f"the {heads} {word} {{}}", f"the {heads} that are {word} {{}}", f"what is {word} {{}}"),
            (f"which {heads} are {word} {{}}", f"{head.who} is {word} {{}}"),
            (f"{word} {{}}", f"that are {word} {{}}"),
            (f"the {tails} that the same {heads} are {word} as {{}}",),
        ),
    )
