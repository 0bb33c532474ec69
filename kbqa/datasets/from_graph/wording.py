"""What the words of a relation mean in English: a verb, a role, a circumstance or an adjective.

directed by              verb, reversed: the tail directs the head
manages                  verb: the head manages the tail
starring                 verb, reversed: the tail stars in the head
starred actors           role: the tail is an actor of the head
author of                role, reversed: the head is the author of the tail
launch mass (kg)         role with a unit, if it leads to numbers
imdb votes               role that is counted, if it leads to numbers
release year, born in    circumstance: when or where the head was released, was born
compatible with          adjective
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kbqa.datasets.from_graph import english
from kbqa.datasets.from_graph.english import LIVING, OF_PEOPLE, PLACES, PREPOSITIONS, STATES
from kbqa.datasets.world.lexicon import NOUN, VERB, Inflections, Lexicon

Shape = Literal["verb", "role", "circumstance", "adjective"]
LeadsTo = Literal["", "numbers", "dates"]
"""What a relation leads to: entities or texts, numbers (years, too), or dates."""

_LEADING = frozenset({"has", "have", "had", "is", "was", "are", "were", "be", "the", "a", "an", "in", "with"})
_TIMES, _WHERE = frozenset({"year", "date", "day", "time"}), frozenset({"place", "location"})
_WHERE_OR_WHEN = frozenset({"in", "on", "at"})
# Verbs, acts and agents that WordNet does not relate to each other, or relates to others.
_VERBS = {"birth": "bear", "death": "die"}
_ACTS = {"bear": "birth", "die": "death", "locate": "location"}
_AGENTS = {"star": "actor"}
# Verbs that WordNet has with an object first, and that are said of people and places without one.
_ACTIVE = frozenset({"act", "appear", "compete", "debut", "perform", "play", "serve", "star", "study"})


@dataclass(frozen=True, slots=True)
class Wording:
    """How a relation is read.

    Attributes:
        word: the verb ("direct", "work for"), the noun or the adjective ("compatible with").
        is_reversed: whether the relation leads from what is acted on, or from what has the role.
        noun: of a circumstance, what the relation asks for: year, date, place.
        preposition: before the tail of a circumstance (born in); "in" of a role, if the head is in its tail
            (in language).
        is_present: whether a verb is about the present (manages), not the past (directed).
        is_measured: whether a role leads to numbers or dates.
        unit: of numbers, in the plural.
        is_counted: whether the numbers are those of things that have the role (votes).
    """

    shape: Shape
    word: str
    is_reversed: bool = False
    noun: str = ""
    preposition: str = ""
    is_present: bool = False
    is_measured: bool = False
    unit: str = ""
    is_counted: bool = False


class Reader:
    """Reads the words of relations."""

    def __init__(self, lexicon: Lexicon, inflections: Inflections) -> None:
        self._lexicon, self._inflect = lexicon, inflections

    def read(self, text: str, leads_to: LeadsTo = "") -> Wording | None:
        """How the words of a relation are read; None if none of them is English."""
        tokens = text.split()
        names_what_is_had = tokens[:1] in (["has"], ["have"], ["in"], ["with"])  # has tags: no verb
        leading = "in" if tokens[:1] == ["in"] else ""
        while len(tokens) > 1 and tokens[0] in _LEADING:
            tokens = tokens[1:]
        if not tokens:
            return None
        tokens, unit = english.unit_of(tokens) if leads_to == "numbers" else (tokens, "")
        tokens = english.spoken(" ".join(tokens))
        if any(token[0].isdigit() for token in tokens):
            return None
        # WordNet's adjectives are not read: a word before a preposition counts as one (eligible for).
        is_adjective = len(tokens) > 1 and tokens[-1] in PREPOSITIONS
        if not is_adjective and not unit and not any(map(self._is_word, tokens)):
            return None
        first, last = tokens[0], tokens[-1]
        if len(tokens) > 1 and last in PREPOSITIONS:
            return self._before_preposition(tokens[:-1], last, leads_to)
        if len(tokens) == 1 and not names_what_is_had and not leads_to and (verb := self._verb(first)):
            return self._single_verb(verb, first)
        if leads_to == "numbers" and (counted := self._counted(tokens)):
            return Wording("role", counted, is_measured=True, is_counted=True)
        if len(tokens) == 3 and tokens[1] == "of" and first in _TIMES | _WHERE:
            tokens = [last, first]  # place of birth, birth place
            first, last = tokens
        noun = english.singular(" ".join(tokens), self._lexicon, self._inflect)
        is_lasting = leads_to == "numbers" and last == "time"  # prep time: a duration
        if len(tokens) == 2 and last in _TIMES | _WHERE and not is_lasting and (verb := self._act(first)):
            preposition = "in" if last == "year" or last in _WHERE else "on"
            return Wording("circumstance", verb, noun=last, preposition=preposition)
        if len(tokens) == 2 and self._participle(first) and english.is_person(noun, self._lexicon):
            noun = noun.split()[-1]  # starred actors
        if leads_to:
            return Wording("role", noun, is_measured=True, unit=unit)
        is_in = leading == "in" or noun in PLACES
        return Wording("role", noun, preposition="in" if is_in else "")

    def noun_of_tails(self, wording: Wording) -> str:
        """What the tails are called; "" if the words do not say."""
        match wording.shape:
            case "role":
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
        match wording.shape:
            case "role" if wording.is_reversed:
                return wording.word
            case "role" if wording.word in OF_PEOPLE:
                return "person"
            case "circumstance" if wording.word in LIVING:
                return "person"
            case "verb" if not wording.is_reversed:
                agent = self.noun_of_agents(wording.word)
                return "" if agent == wording.word else agent
        return ""

    def noun_of_agents(self, verb: str) -> str:
        """Who does what a verb says: director, of direct; "" if there is no word."""
        verb, _, _ = verb.partition(" ")
        if verb in _AGENTS:
            return _AGENTS[verb]
        spelled = (f"{verb}or", f"{verb}er", f"{verb.removesuffix('e')}er", f"{verb.removesuffix('e')}or")
        known = [noun for noun in spelled if self._lexicon.is_person(noun)]
        derived = self._lexicon.agent(verb) or ""
        # Who is trained is no trainer, and what is created no creator.
        if derived == verb or derived.endswith(("er", "or", "ist", "ant", "ent")):
            return derived
        return max(known, key=lambda noun: self._lexicon.count(noun, NOUN), default="")

    def act(self, verb: str) -> str:
        """An act as a noun: publication, of publish."""
        if verb in _ACTS or self._lexicon.knows(verb, NOUN):
            return _ACTS.get(verb, verb)  # a release
        return self._lexicon.act(verb) or self._inflect.of(verb, "VBG")

    def is_done_to(self, verb: str) -> bool:
        """Whether what a verb says is done to somebody or something: released, but not died."""
        return self._lexicon.is_transitive(verb) and verb not in _ACTIVE or verb in STATES

    def _single_verb(self, verb: str, token: str) -> Wording:
        if verb == "star":  # starring: who is starred in a film stars in it
            return Wording("verb", "star in", is_reversed=True)
        is_participle = self._inflect.of(verb, "VBN") == token
        return Wording(
            "verb", verb, is_reversed=is_participle, is_present=not is_participle or verb in STATES
        )

    def _before_preposition(self, tokens: list[str], preposition: str, leads_to: LeadsTo) -> Wording | None:
        *before, first = tokens
        verb = self._participle(first)
        noun = english.singular(" ".join(tokens), self._lexicon, self._inflect)
        if preposition == "by" and verb:
            return Wording("verb", verb, is_reversed=True, is_present=verb in STATES)
        if preposition == "of" and self._lexicon.knows(noun.split()[-1], NOUN):
            return Wording("role", noun, is_reversed=True)
        if preposition in _WHERE_OR_WHEN and verb and not before:
            time = "date" if leads_to == "dates" else "year" if leads_to else ""
            return Wording(
                "circumstance",
                verb,
                noun=time or "place",
                preposition=preposition,
                is_present=verb in STATES,
            )
        if verb and not before and not self.is_done_to(verb):
            return Wording("verb", f"{verb} {preposition}")  # graduated from
        if not before and not verb and (does := self._does(first)):
            return Wording("verb", f"{does} {preposition}", is_present=True)
        is_past = verb != "" and not before and verb not in STATES  # trained under
        return Wording("adjective", " ".join([*tokens, preposition]), is_present=not is_past)

    def _is_word(self, token: str) -> bool:
        lemmas = (
            token,
            *self._inflect.lemmas(token, VERB),
            *self._inflect.lemmas(token, NOUN),
            english.singular(token, self._lexicon, self._inflect),
        )
        return len(token) > 2 and any(
            self._lexicon.knows(lemma, part) for lemma in lemmas for part in (NOUN, VERB)
        )

    def _participle(self, token: str) -> str:
        """The verb of which a token is the participle; "" if it is none."""
        for lemma in self._inflect.lemmas(token, VERB):
            if lemma != token and self._lexicon.knows(lemma, VERB) and not token.endswith(("s", "ing")):
                return lemma
        return ""

    def _verbs(self, token: str) -> Iterator[str]:
        for lemma in self._inflect.lemmas(token, VERB):
            if lemma != token and self._lexicon.knows(lemma, VERB):
                yield lemma

    def _verb(self, token: str) -> str:
        """The verb of which a token is a form, unless it is rather a noun; "" if it is none."""
        nouns = max(
            (self._lexicon.count(lemma, NOUN) for lemma in self._inflect.lemmas(token, NOUN)), default=-1
        )
        return next((verb for verb in self._verbs(token) if self._lexicon.count(verb, VERB) > nouns), "")

    def _does(self, token: str) -> str:
        """The verb of a token in the present; before a preposition, "reports" is one."""
        return next(self._verbs(token), "") if token.endswith("s") else ""

    def _act(self, token: str) -> str:
        return _VERBS.get(token) or self._participle(token) or self._lexicon.verb_of(token) or ""

    def _counted(self, tokens: list[str]) -> str:
        """What numbers count, in the singular; "" if they measure."""
        text = " ".join(tokens)
        if tokens[:2] == ["number", "of"]:
            text = " ".join(tokens[2:])
        elif len(tokens) > 1 and tokens[-1] in ("count", "number"):
            return english.singular(" ".join(tokens[:-1]), self._lexicon, self._inflect)
        elif not english.is_plural(text, self._lexicon, self._inflect):
            return ""
        return english.singular(text, self._lexicon, self._inflect)
