"""English phrases for the relations of a graph, whose words agree in number (`world.agreement`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kbqa.datasets.from_graph import english
from kbqa.datasets.from_graph.english import SUBJECTS, with_article
from kbqa.datasets.from_graph.nouns import Nouns, agreeing
from kbqa.datasets.from_graph.verbs import Happens, Verb
from kbqa.datasets.from_graph.wording import Reader, Wording
from kbqa.datasets.world.lexicon import Inflections
from kbqa.datasets.world.phrases import Party

_ONE_OF = "{s:|one of }{}"  # the films starring one of the actors of Heat


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of the nodes to which a relation leads in one direction.

    Attributes:
        named: noun phrases ("the author of {}").
        asked: questions ("who wrote {}").
        clauses: after a noun ("written by {}").
        sharing: noun phrases for what else leads to these nodes ("the books by the same author as {}").
        whether: yes/no questions, whether `{e}` is one of these nodes.
    """

    named: tuple[str, ...]
    asked: tuple[str, ...]
    clauses: tuple[str, ...]
    sharing: tuple[str, ...]
    whether: tuple[str, ...]


class Speaker:
    """Puts relations into words."""

    def __init__(self, reader: Reader, inflections: Inflections) -> None:
        self._reader, self._inflect = reader, inflections

    def link(self, wording: Wording, head: Party, tail: Party, *, several: bool) -> tuple[Said, Said]:
        """Phrases for the tails of a head, and for the heads of a tail.

        Args:
            several: whether a head usually has several tails.
        """
        heads, tails = Nouns.of(head), Nouns.of(tail)
        match wording.shape:
            case "verb":
                if wording.is_reversed:
                    return self._agents(wording, tails, heads), self._patients(wording, tails, heads)
                return self._patients(wording, heads, tails), self._agents(wording, heads, tails)
            case "circumstance":
                return self._circumstance(wording, heads, tails)
            case "adjective":
                return _of_adjective(wording, heads, tails)
        if wording.is_measured:
            return self._measure(wording, heads)
        if wording.is_reversed:
            return self._holders(wording, tails, heads, True), self._held(wording, tails, heads, True)
        return self._held(wording, heads, tails, several), self._holders(wording, heads, tails, several)

    # Verbs

    def _patients(self, wording: Wording, agent: Nouns, patient: Nouns) -> Said:
        """What an agent does something to."""
        verb = Verb.of(wording, self._inflect)
        many, either, p = patient.several, patient.either, verb.preposition
        named = [f"the {either} that {{}} {verb.does_s}{p}"]
        asked = [
            f"which {many} {verb.aux_s} {{}} {verb.base}{p}",
            f"{{}} {verb.does_s}{p} which {many}",
        ]
        if not patient.is_general or patient.who == "what":
            asked.append(f"what {verb.aux_s} {{}} {verb.base}{p}")
        clauses = [f"that {{}} {verb.does_s}{p}"]
        whether = [f"{verb.aux_s} {{}} {verb.base}{p} {{e}}"]
        if not p:
            named += [f"the {either} {verb.done} by {{}}"] * 2
            asked.append(f"which {many} {verb.be_many} {verb.done} by {{}}")
            clauses += [f"{verb.done} by {{}}", f"that {verb.be_a} {verb.done} by {{}}"]
            whether.append(f"{verb.be_one} {{e}} {verb.done} by {_ONE_OF}")
        if wording.word == "star in":
            named += [f"the {either} starring {_ONE_OF}"] * 2
            clauses += [f"starring {_ONE_OF}"]
        sharing = [
            f"the {agent.several} {agent.that} {verb.does_many}{p} the same {patient.one} as {{}}",
            f"the {agent.several} that share {with_article(patient.one)} with {{}}",
        ]
        if role := self._agent_noun(wording, agent):
            sharing.append(f"the co-{english.plural(role, self._inflect)} of {{}}")
        return _said(named, asked, clauses, sharing, whether)

    def _agents(self, wording: Wording, agent: Nouns, patient: Nouns) -> Said:
        """Who or what does something to a patient."""
        verb = Verb.of(wording, self._inflect)
        p = verb.preposition
        named = [f"the {agent.either} {agent.that} {verb.does_a}{p} {{}}"]
        asked = [f"which {agent.either} {verb.does_a}{p} {{}}", f"{agent.who} {verb.does_one}{p} {{}}"]
        clauses = [f"{agent.that} {verb.does_a}{p} {{}}"]
        whether = [
            f"{verb.aux_one} {{e}} {verb.base}{p} {_ONE_OF}",
            f"is it true that {{e}} {verb.does_one}{p} {_ONE_OF}",
        ]
        sharing = [f"the {patient.several} that share {with_article(agent.one)} with {{}}"]
        if p:
            sharing.append(f"the {patient.several} with the same {agent.one} as {{}}")
        else:
            whom = "whom" if agent.who == "who" else f"which {agent.either}"
            asked += [
                f"by {whom} {verb.be_s} {{}} {verb.done}",
                f"{{}} {verb.be_s} {verb.done} by which {agent.either}",
            ]
            whether.append(f"{verb.be_s} {{}} {verb.done} by {{e}}")
            sharing.append(f"the {patient.several} {verb.done} by the same {agent.one} as {{}}")
        if wording.is_present and not p:
            clauses.append(f"{verb.doing} {_ONE_OF}")
        if role := self._agent_noun(wording, agent):
            roles = english.plural(role, self._inflect)
            either = agreeing(role, roles)
            named += [f"the {either} of {{}}"] * 2 + [f"{{name}} 's {either}"]
            asked += [
                f"{agent.who} {{a:is|are}} the {either} of {{}}",
                f"{agent.who} {{a:is|are}} {{name}} 's {either}",
            ]
            sharing += [
                f"the {patient.several} with the same {role} as {{}}",
                f"the {patient.several} that share {with_article(role)} with {{}}",
            ]
        return _said(named, asked, clauses, sharing, whether)

    def _agent_noun(self, wording: Wording, agent: Nouns) -> str:
        """Director, of direct; "" if there is none or it is misleading: a dish that uses salt is no user."""
        verb, _, preposition = wording.word.partition(" ")
        if (preposition and verb != "star") or not (wording.is_reversed or agent.who == "who"):
            return ""  # who works for a company is not the worker of the company
        role = self._reader.noun_of_agents(verb)
        return role if agent.who == "who" or role != verb else ""

    # Roles

    def _held(self, wording: Wording, holder: Nouns, held: Nouns, several: bool) -> Said:
        """What has a role for a holder: its author, its genre."""
        one, many = wording.word, english.plural(wording.word, self._inflect)
        either, who, some = agreeing(one, many), held.who, with_article(one)
        named = [f"the {either} of {{}}"] * 3 + [f"{{name}} 's {either}"] * 2
        asked = [f"{who} {{a:is|are}} the {either} of {{}}"] * 2 + [
            f"{who} {{a:is|are}} {{name}} 's {either}"
        ]
        if who == "what":
            asked += [f"what {either} {{s:does|do}} {{}} have", f"which {either} {{s:does|do}} {{}} have"]
        sharing = [
            f"the {holder.several} with the same {one} as {{}}",
            f"the {holder.several} {holder.that} have the same {one} as {{}}",
            f"the {holder.several} {holder.that} share {some} with {{}}",
            f"the {holder.several} {holder.that} have {some} in common with {{}}",
        ]
        whether = [f"is {{e}} {some if several else f'the {one}'} of {_ONE_OF}"]
        if _is_in(wording, holder, held):
            named.append(f"the {either} that {{}} {{s:is|are}} in")
            asked += [f"which {either} {{s:is|are}} {{}} in", f"in which {either} {{s:is|are}} {{}}"]
            whether = ["{s:is|are} {} in {e}"]
        if one in SUBJECTS:
            named += ["the {a:topic|topics} of {}", "the {a:word that describes|words that describe} {}"]
            asked += ["what {s:is|are} {} about"] * 2 + ["what words describe {}"]
            asked += ["which topics {s:is|are} {} about"]
            whether.append("{s:is|are} {} about {e}")
        return _said(named, asked, [f"{held.that} {{a:is {some}|are {many}}} of {{}}"], sharing, whether)

    def _holders(self, wording: Wording, holder: Nouns, held: Nouns, several: bool) -> Said:
        """What something has a role for."""
        one, many = wording.word, english.plural(wording.word, self._inflect)
        some, the, have = with_article(one), f"the {one}", "{a:has|have}"
        # The films whose actors include Val Kilmer, and whose director is Michael Mann.
        whose = f"whose {many} include {_ONE_OF}" if several else f"whose {one} {{s:is|is one of}} {{}}"
        role = some if several else one
        if held.who == "who":
            described, has = f"with {{name}} as {role}", f"{have} {{name}} as {role}"
        else:
            described, has = f"with {the} {{name}}", f"{have} {the} {{name}}"
        named = [f"the {holder.either} {whose}"] * 2 + [f"the {holder.either} {described}"]
        asked = [
            f"which {holder.either} {has}",
            f"which {holder.either} {have} {{name}} as {some}",
            f"{{name}} is {some if several else the} of which {holder.several}",
        ]
        clauses = [whose, described]
        whether = [f"does {{e}} have {{name}} as {some}", f"is {{name}} {some if several else the} of {{e}}"]
        sharing = (
            [f"the other {many} of the {holder.several} {whose}"] if several and holder.who == "what" else []
        )
        if _is_in(wording, holder, held):
            named += [f"the {holder.either} in {{}}"] * 2
            asked += [f"which {holder.either} {{a:is|are}} in {_ONE_OF}"] * 2
            clauses += ["in {}", "that {a:is|are} in {}"]
            whether, sharing = [f"is {{e}} in {_ONE_OF}"], []
        if one in SUBJECTS:
            named += [f"the {holder.either} about {{}}"] * 2
            asked += [f"which {holder.either} {{a:is|are}} about {_ONE_OF}"] * 2
            clauses += ["about {}", "that {a:is|are} about {}"]
            whether.append(f"is {{e}} about {_ONE_OF}")
        return _said(named, asked, clauses, sharing, whether)

    def _measure(self, wording: Wording, holder: Nouns) -> tuple[Said, Said]:
        """The number or date of something, where it is a node; and what has that number."""
        one, many = wording.word, english.plural(wording.word, self._inflect)
        have, value = "{a:has|have}", f"{{name}} {wording.unit}".rstrip()
        if wording.is_counted:
            one, numbers = f"number of {many}", f"numbers of {many}"
            questions = [f"how many {many} {{s:does|do}} {{}} have"] * 2
            clauses, whether = (
                [f"with {{name}} {many}", f"{holder.that} {have} {{name}} {many}"],
                f"does {{e}} have {{name}} {many}",
            )
            asked_back, is_it = (
                [f"which {holder.either} {have} {{name}} {many}"],
                f"{{s:does|do}} {{}} have {{e}} {many}",
            )
        else:
            numbers = many
            questions = [f"what {{a:is|are}} {{name}} 's {agreeing(one, many)}"]
            questions += [f"what is the {one} of {{name}} in {wording.unit}"] if wording.unit else []
            clauses, whether = (
                [f"with {with_article(one)} of {value}", f"whose {one} is {value}"],
                f"is the {one} of {{e}} {value}",
            )
            asked_back = [f"which {holder.either} {have} {with_article(one)} of {value}"]
            is_it = f"is the {one} of {{}} {{e}} {wording.unit}".rstrip()
        either = agreeing(one, numbers)
        sharing = [
            f"the {holder.several} {holder.that} have the same {one} as {{}}",
            f"the {holder.several} with the same {one} as {{}}",
        ]
        clauses.append(f"whose {one} {{s:is|is one of}} {{phrase}}")
        to_values = _said(
            [f"the {either} of {{}}", f"{{name}} 's {either}"],
            [f"what {{a:is|are}} the {either} of {{}}", *questions],
            [],
            sharing,
            [is_it],
        )
        named = [f"the {holder.either} {clause}" for clause in clauses]
        return to_values, _said(named, asked_back, clauses, [], [whether.replace("{name}", "{}")])

    # Circumstances

    def _circumstance(self, wording: Wording, head: Nouns, tail: Nouns) -> tuple[Said, Said]:
        verb = Verb.of(wording, self._inflect)
        happens = Happens.of(wording, verb, self._reader)
        is_time = wording.noun in ("year", "date", "day", "time")
        general = wording.noun or "place"
        noun = general if tail.is_general or is_time else tail.one
        is_time = is_time or noun in ("year", "date", "day", "time")
        nouns = agreeing(noun, english.plural(noun, self._inflect))
        act, p = self._reader.act(wording.word), wording.preposition or "in"
        when = "when" if is_time else "where"
        acted = act if act == noun or act.endswith(noun) else f"{act} {noun}"
        base = agreeing(acted, english.plural(acted, self._inflect))
        named = [f"the {base} of {{}}", f"{{name}} 's {base}"]
        if wording.is_present:
            named = [f"the {nouns} where {{}} {happens.finite_s}"]
        else:
            named.append(f"the {nouns} {'in which' if is_time else 'where'} {{}} {happens.finite_s}")
        asked = [
            *(f"{when} {happens.ask_s}",) * 3,
            f"{p} which {nouns} {happens.ask_s}",
            f"what {nouns} {happens.ask_s} {p}" if not is_time else f"what {{a:is|are}} the {base} of {{}}",
            f"{{}} {happens.finite_s} {p} which {nouns}",
        ]
        clause = f"{happens.participle} {p} {_ONE_OF}" if happens.participle else ""
        relative = f"{head.that} {happens.finite_a} {p} {_ONE_OF}"
        clauses_back = [one for one in (clause, clause, relative) if one]
        asked_back = [f"which {head.either} {happens.finite_a} {p} {_ONE_OF}"]
        if head.who == "who":
            asked_back.append(f"who {happens.finite_one} {p} {_ONE_OF}")
        elif head.is_general:
            asked_back.append(f"what {happens.finite_one} {p} {_ONE_OF}")
        participles = [happens.participle] if happens.participle else []
        same_tail = [
            *(f"the {head.several} {done} {p} the same {noun} as {{}}" for done in participles),
            f"the {head.several} {head.that} {happens.finite_many} {p} the same {noun} as {{}}",
        ]
        if not wording.is_present:
            same_tail.append(f"the {head.several} that share {with_article(acted)} with {{}}")
        to_tails = _said(named, asked, [], same_tail, [f"{happens.ask_s} {p} {{e}}"])
        to_heads = _said(
            [f"the {head.either} {one}" for one in clauses_back],
            asked_back,
            clauses_back,
            [],
            [f"{happens.ask_e} {p} {_ONE_OF}"],
        )
        return to_tails, to_heads


def _of_adjective(wording: Wording, head: Nouns, tail: Nouns) -> tuple[Said, Said]:
    """Phrases for what something is compatible with, and for what is compatible with it."""
    word = wording.word
    be_s, be_a, one = ("{s:is|are}", "{a:is|are}", "is")
    if not wording.is_present:
        be_s, be_a, one = "{s:was|were}", "{a:was|were}", "was"
    return (
        _said(
            [f"the {tail.either} that {{}} {be_s} {word}"],
            [f"which {tail.either} {be_s} {{}} {word}", f"{tail.who} {be_s} {{}} {word}"],
            [f"that {{}} {be_s} {word}"],
            [f"the {head.several} {word} the same {tail.one} as {{}}"],
            [f"{be_s} {{}} {word} {{e}}"],
        ),
        _said(
            [f"the {head.either} {word} {_ONE_OF}", f"the {head.either} {head.that} {be_a} {word} {_ONE_OF}"],
            [f"which {head.either} {be_a} {word} {_ONE_OF}", f"{head.who} {one} {word} {_ONE_OF}"],
            [f"{word} {_ONE_OF}", f"{head.that} {be_a} {word} {_ONE_OF}"],
            [],
            [f"{one} {{e}} {word} {_ONE_OF}"],
        ),
    )


def _is_in(wording: Wording, holder: Nouns, held: Nouns) -> bool:
    """Whether the holder is in what it has: a city in its country, a film in its language."""
    return wording.preposition == "in" and holder.who == "what" and held.who == "what"


def _said(
    named: Iterable[str],
    asked: Iterable[str],
    clauses: Iterable[str],
    sharing: Iterable[str],
    whether: Iterable[str],
) -> Said:
    return Said(tuple(named), tuple(asked), tuple(clauses), tuple(sharing), tuple(whether))
