"""Forms of a verb in patterns whose words agree in number, and how something is said to happen."""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.datasets.from_graph.wording import Reader, Wording
from kbqa.datasets.world.lexicon import Inflections


@dataclass(frozen=True, slots=True)
class Verb:
    """Forms of a verb: `_s` agrees with the subject, `_a` with what is asked for, others are fixed."""

    base: str
    done: str
    doing: str
    preposition: str  # with a space before it, or ""
    does_s: str
    does_a: str
    does_one: str
    does_many: str
    aux_s: str
    aux_one: str
    be_s: str
    be_a: str
    be_one: str
    be_many: str

    @classmethod
    def of(cls, wording: Wording, inflections: Inflections) -> Verb:
        base, _, preposition = wording.word.partition(" ")
        does, did, done, doing = (inflections.of(base, tag) for tag in ("VBZ", "VBD", "VBN", "VBG"))
        if base == "bear":
            done = "born"
        p = f" {preposition}" if preposition else ""
        if wording.is_present:
            return cls(
                *(base, done, doing, p, f"{{s:{does}|{base}}}", f"{{a:{does}|{base}}}", does, base),
                *("{s:does|do}", "does", "{s:is|are}", "{a:is|are}", "is", "are"),
            )
        return cls(
            *(base, done, doing, p, did, did, did, did, "did", "did"),
            *("{s:was|were}", "{a:was|were}", "was", "were"),
        )


@dataclass(frozen=True, slots=True)
class Happens:
    """How something is said to happen: it "was released", but "died".

    Attributes:
        participle: after a noun (released); "" if a verb has none there (people died in 1990).
        ask_s, ask_e: as a question about the subject ("was {} released", "did {} die"), and about `{e}`.
    """

    participle: str
    finite_s: str
    finite_a: str
    finite_one: str
    finite_many: str
    ask_s: str
    ask_e: str

    @classmethod
    def of(cls, wording: Wording, verb: Verb, reader: Reader) -> Happens:
        if reader.is_done_to(wording.word):
            done = verb.done
            return cls(
                done,
                f"{verb.be_s} {done}",
                f"{verb.be_a} {done}",
                f"{verb.be_one} {done}",
                f"{verb.be_many} {done}",
                f"{verb.be_s} {{}} {done}",
                f"{verb.be_one} {{e}} {done}",
            )
        return cls(
            "",
            verb.does_s,
            verb.does_a,
            verb.does_one,
            verb.does_many,
            f"{verb.aux_s} {{}} {verb.base}",
            f"{verb.aux_one} {{e}} {verb.base}",
        )
