"""English phrases for an invented relation: for its tails, for its heads, and questions that end with it.

Patterns are written with `{}` for the subject. In the other braces stand the words of the relation, which are
drawn anew for each pattern: its own word, or one of the same, a wider or a narrower meaning. So a question
seldom says what the graph says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbqa.datasets.world.lexicon import NOUN, VERB, Inflections, Lexicon, PartOfSpeech
from kbqa.datasets.world.schema import EntityKind


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases for the nodes that a relation leads to in one direction.

    Attributes:
        named: noun phrases ("the author of {}").
        asked: questions ("who wrote {}").
        clauses: clauses after a noun in the plural ("written by {}").
        sharing: noun phrases for what else leads to these nodes ("the books by the same author as {}").
    """

    named: tuple[str, ...]
    asked: tuple[str, ...]
    clauses: tuple[str, ...]
    sharing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Party:
    """A kind of entities at one end of a relation."""

    kind: EntityKind
    is_person: bool

    @property
    def who(self) -> str:
        return "who" if self.is_person else "what"

    @property
    def whom(self) -> str:
        return "whom" if self.is_person else "what"


# Verb phrases: {V} as in "write", {s} writes, {d} wrote, {n} written, {g} writing; {A}, {As} the agent's
# kind, {P}, {Ps} the patient's; {r} the agent's name after the verb (writer).
_PATIENTS_NAMED = (
    "the {Ps} that {{}} {d}",
    "the {Ps} {n} by {{}}",
    "the {P} {{}} {d}",
    "{Ps} {n} by {{}}",
    "the {Ps} which were {n} by {{}}",
    "{{}} {n} {Ps}",
    "the {Ps} {{}} has {n}",
    "what {{}} {s}",
)
_PATIENTS_ASKED = (
    "what did {{}} {V}",
    "which {Ps} did {{}} {V}",
    "what {Ps} were {n} by {{}}",
    "{{}} {d} which {Ps}",
    "what does {{}} {V}",
    "which {P} is {n} by {{}}",
    "{{}} {s} what",
    "what {Ps} does {{}} {V}",
    "{{}} {n} {Ps}",
    "which {Ps} are {n} by {{}}",
)
_PATIENT_CLAUSES = ("that {{}} {d}", "{n} by {{}}", "which {{}} {s}")
_AGENTS_NAMED = (
    "the {A} that {d} {{}}",
    "the {As} that {V} {{}}",
    "the {As} {g} {{}}",
    "{As} that {d} {{}}",
    "the {A} by which {{}} was {n}",
)
_AGENTS_ASKED = (
    "{who} {d} {{}}",
    "which {A} {d} {{}}",
    "by {whom} was {{}} {n}",
    "{{}} was {n} by {whom}",
    "{{}} is {n} by which {As}",
    "{who} {s} {{}}",
    "which {As} {V} {{}}",
    "{{}} were {n} by {who}",
    "{who} was {{}} {n} by",
)
_AGENT_CLAUSES = ("that {d} {{}}", "{g} {{}}", "that {V} {{}}")
_AGENTS_SHARING = (
    "the {Ps} {n} by the same {A} as {{}}",
    "the {Ps} that share {As} with {{}}",
    "{Ps} {n} by whoever {d} {{}}",
)
_AGENT_NOUN_SHARING = (
    "the {Ps} that share {r}s with {{}}",
    "the {Ps} that share a {r} with the {P} {{}}",
    "the {Ps} with the same {r} as {{}}",
    "{Ps} whose {r}s are also those of {{}}",
)
_PATIENTS_SHARING = (
    "the {As} that {d} the same {Ps} as {{}}",
    "the {As} that share a {P} with {{}}",
    "who {d} together with {{}}",
    "the {As} that {d} {Ps} together with {{}}",
    "who {d} {Ps} with {{}}",
    "the {As} who co-{d} with {{}}",
    "the {As} that {d} {Ps} alongside {{}}",
)
_PATIENT_NOUN_SHARING = (
    "the co-{r}s of {{}}",
    "{{}} 's fellow {r}s",
    "{{}} 's co-{r}s",
    "who is a co-{r} of {{}}",
)
_AGENT_NOUN = ("the {r} of {{}}", "{{}} 's {r}", "the {r}s of {{}}")
_AGENT_NOUN_ASKED = ("{who} is the {r} of {{}}", "{who} was the {r} of {{}}")

# Nouns: {N} and {Ns} the role's name; {H}, {Hs} the kind that has it, {T}, {Ts} the kind that is it.
_ROLE_NAMED = (
    "the {N} of {{}}",
    "{{}} 's {N}",
    "the {N} of {{}}",
    "{{}} 's {N}",
    "{N} of {{}}",
    "{{}} {N}",
    "the {Ns} of {{}}",
    "the {T} that is the {N} of {{}}",
)
_ROLE_ASKED = (
    "{who} is the {N} of {{}}",
    "{who} is {{}} 's {N}",
    "what {N} does {{}} have",
    "which {T} is the {N} of {{}}",
    "{{}} has which {N}",
    "{who} was the {N} of {{}}",
    "{who} is {N} of {{}}",
    "{who} are the {Ns} of {{}}",
)
_ROLE_SHARING = (
    "the {Hs} that share {Ns} with {{}}",
    "the {Hs} that share a {N} with the {H} {{}}",
    "the {Hs} with the same {N} as {{}}",
    "{Hs} that have the same {N} as {{}}",
    "the {Hs} whose {Ns} are also {{}} 's",
    "the {Hs} that have a {N} in common with {{}}",
)
_HOLDERS_SHARING = ("the {Ns} of the same {H} as {{}}", "the {Ts} that share a {H} with {{}}")
_ROLE_CLAUSES = ("that are the {N} of {{}}", "that {{}} has as {N}")
_HOLDERS_NAMED = (
    "the {Hs} whose {N} is {{}}",
    "the {Hs} with {{}} as {N}",
    "the {Hs} that have {{}} as their {N}",
    "the {H} with the {N} {{}}",
    "{Hs} having {N} {{}}",
    "the {H} of which {{}} is the {N}",
)
_HOLDERS_ASKED = (
    "which {Hs} have {{}} as {N}",
    "whose {N} is {{}}",
    "{{}} is the {N} of what",
    "{{}} is the {N} of which {Hs}",
    "what {Hs} have the {N} {{}}",
    "which {H} has the {N} {{}}",
    "of what is {{}} the {N}",
    "{{}} is {N} in which {Hs}",
)
_HOLDER_CLAUSES = ("whose {N} is {{}}", "with {{}} as {N}", "with the {N} {{}}")
# The same, where the relation is named after the kind to which it leads (genre, country).
_SORT_NAMED = (
    "the {N} of {{}}",
    "{{}} 's {N}",
    "the {N} {{}} belongs to",
    "the {N} in which {{}} is",
    "{{}} {N}",
    "the {Ns} of {{}}",
)
_SORT_ASKED = (
    "what {N} is {{}}",
    "which {N} does {{}} have",
    "what {N} is {{}} in",
    "which {N} does {{}} belong to",
    "what kind of {N} is {{}}",
    "what is the {N} of {{}}",
    "{{}} has what {N}",
    "what {Ns} are {{}} in",
    "what sort of {H} is {{}}",
)
_SORT_CLAUSES = ("that are the {N} of {{}}",)
_SORTED_NAMED = (
    "the {Hs} of {{}}",
    "the {Hs} in {{}}",
    "{{}} 's {Hs}",
    "the {Hs} with {N} {{}}",
    "the {Hs} of the {N} {{}}",
    "{{}} {Hs}",
    "the {Hs} that belong to {{}}",
)
_SORTED_ASKED = (
    "which {Hs} are in {{}}",
    "what {Hs} belong to {{}}",
    "what {Hs} does {{}} have",
    "which {Hs} have the {N} {{}}",
    "name a {H} of {{}}",
    "{{}} is the {N} of which {Hs}",
    "what {Hs} are {{}}",
)
_SORTED_CLAUSES = ("of {{}}", "in {{}}", "with {N} {{}}", "of the {N} {{}}")
# When or where: {noun} is "year" or "place", {base} the act (birth), {wh} when or where.
_ADVERB_NAMED = (
    "the {noun} of {{}} 's {base}",
    "the {noun} {wh} {{}} was {n}",
    "the {base} {noun} of {{}}",
    "{{}} 's {noun} of {base}",
    "the {noun} of {base} of {{}}",
    "{wh} {{}} was {n}",
)
_ADVERB_ASKED = (
    "{wh} was {{}} {n}",
    "{wh} were {{}} {n}",
    "{wh} did {{}} {V}",
    "in which {noun} was {{}} {n}",
    "what {noun} was {{}} {n}",
    "{{}} was {n} {wh}",
    "what is the {base} {noun} of {{}}",
    "{{}} were {n} in which {noun}s",
)
_THERE_NAMED = ("the {Hs} {n} in {{}}", "the {Hs} that were {n} in {{}}", "{Hs} {n} in {{}}")
_THERE_ASKED = ("which {Hs} were {n} in {{}}", "what was {n} in {{}}", "what {Hs} had their {base} in {{}}")
_ADVERB_SHARING = (
    "the {Hs} {n} in the same {noun} as {{}}",
    "the {Hs} that share the {noun} of {base} with {{}}",
    "{Hs} that were {n} {wh} {{}} was",
)
_THERE_CLAUSES = ("{n} in {{}}", "that were {n} in {{}}")


_SHORTEST = 3  # patterns of noun phrases, in a terse world
_MOST = 5  # patterns of each sort that a relation gets: a world has its own few


class Phrasing:
    """Phrases for the relations of one world.

    Args:
        faithful: share of the phrases that use the relation's own word.
        terse: whether noun phrases are as short as they can be ("X 's boss 's salary").
    """

    def __init__(
        self,
        lexicon: Lexicon,
        inflections: Inflections,
        rng: random.Random,
        *,
        faithful: float,
        terse: bool = False,
    ) -> None:
        self._lexicon, self._inflect, self._rng = lexicon, inflections, rng
        self._faithful, self._terse = faithful, terse

    def of_verb(self, verb: str, agent: Party, patient: Party) -> tuple[Phrases, Phrases]:
        """Phrases for what an agent does something to, and for who does it."""
        fixed = self._kinds("A", agent) | self._kinds("P", patient) | {"who": agent.who, "whom": agent.whom}

        def words() -> dict[str, str]:
            return fixed | self._verb(verb)

        named: Sequence[str] = _AGENTS_NAMED
        asked: Sequence[str] = _AGENTS_ASKED
        sharing: Sequence[str] = _AGENTS_SHARING
        together: Sequence[str] = _PATIENTS_SHARING
        if noun := self._lexicon.agent(verb):
            fixed["r"] = noun
            named, asked = (*named, *_AGENT_NOUN * 2), (*asked, *_AGENT_NOUN_ASKED)
            sharing = (*sharing, *_AGENT_NOUN_SHARING)
            together = (*together, *_PATIENT_NOUN_SHARING)
        return (
            self._phrases(_PATIENTS_NAMED, _PATIENTS_ASKED, _PATIENT_CLAUSES, together, words),
            self._phrases(named, asked, _AGENT_CLAUSES, sharing, words),
        )

    def of_role(self, noun: str, holder: Party, held: Party) -> tuple[Phrases, Phrases]:
        """Phrases for what has a role for a holder (its author), and for the holders."""
        words = self._noun_words(noun, holder, held)
        return (
            self._phrases(_ROLE_NAMED, _ROLE_ASKED, _ROLE_CLAUSES, _ROLE_SHARING, words),
            self._phrases(_HOLDERS_NAMED, _HOLDERS_ASKED, _HOLDER_CLAUSES, _HOLDERS_SHARING, words),
        )

    def of_sort(self, noun: str, holder: Party, held: Party) -> tuple[Phrases, Phrases]:
        """As `of_role`, for a relation that is named after the kind of its tails (genre)."""
        words = self._noun_words(noun, holder, held)
        return (
            self._phrases(_SORT_NAMED, _SORT_ASKED, _SORT_CLAUSES, _ROLE_SHARING, words),
            self._phrases(_SORTED_NAMED, _SORTED_ASKED, _SORTED_CLAUSES, _HOLDERS_SHARING, words),
        )

    def of_circumstance(
        self, verb: str, base: str, holder: Party, *, noun: str, adverb: str
    ) -> tuple[Phrases, Phrases]:
        """Phrases for where or when something was done, and for those with which it was done there."""
        fixed = self._kinds("H", holder) | {"noun": noun, "wh": adverb, "base": base}

        def words() -> dict[str, str]:
            return fixed | self._verb(verb)

        return (
            self._phrases(_ADVERB_NAMED, _ADVERB_ASKED, (), _ADVERB_SHARING, words),
            self._phrases(_THERE_NAMED, _THERE_ASKED, _THERE_CLAUSES, (), words),
        )

    def _phrases(
        self,
        named: Sequence[str],
        asked: Sequence[str],
        clauses: Sequence[str],
        sharing: Sequence[str],
        words: Callable[[], dict[str, str]],
    ) -> Phrases:
        if self._terse:
            named = sorted(dict.fromkeys(named), key=len)[:_SHORTEST]
        return Phrases(*(self._some(patterns, words) for patterns in (named, asked, clauses, sharing)))

    def _some(self, patterns: Sequence[str], words: Callable[[], dict[str, str]]) -> tuple[str, ...]:
        count = min(len(patterns), self._rng.randint(2, _MOST))
        # The words may be drawn differently when a pattern is used again.
        drawn = (pattern.format(**words()) for pattern in self._rng.sample(patterns, count) for _ in range(2))
        return tuple(dict.fromkeys(drawn))

    def _noun_words(self, noun: str, holder: Party, held: Party) -> Callable[[], dict[str, str]]:
        fixed = self._kinds("H", holder) | self._kinds("T", held) | {"who": held.who, "whom": held.whom}

        def words() -> dict[str, str]:
            drawn = self._relative(noun, NOUN)
            return fixed | {"N": drawn, "Ns": plural(drawn, self._inflect)}

        return words

    def _verb(self, verb: str) -> dict[str, str]:
        drawn = self._relative(verb, VERB)
        head, _, rest = drawn.partition(" ")
        tags = {"s": "VBZ", "d": "VBD", "n": "VBN", "g": "VBG"}
        forms = {key: self._inflect.of(head, tag) for key, tag in tags.items()} | {"V": head}
        return {key: f"{form} {rest}".rstrip() for key, form in forms.items()}

    def _relative(self, word: str, part: PartOfSpeech) -> str:
        """The word itself, or one that may stand in for it."""
        if self._rng.random() < self._faithful:
            return word
        same, wider, narrower = self._lexicon.related(word, part)
        pools = [pool for pool in (same, same, wider, narrower) if pool]
        return self._rng.choice(self._rng.choice(pools)) if pools else word

    def _kinds(self, letter: str, party: Party) -> dict[str, str]:
        return {letter: party.kind.singular, f"{letter}s": party.kind.plural}


def plural(noun: str, inflections: Inflections) -> str:
    """A noun in the plural; of several words, the last one is inflected."""
    *first, last = noun.split()
    return " ".join([*first, "people" if last == "person" else inflections.of(last, "NNS")])
