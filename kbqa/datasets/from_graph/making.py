"""Makes questions from a loaded graph alone; each form is executed on the graph, whose answers count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kbqa.datasets.from_graph.describing import Described, describe
from kbqa.datasets.from_graph.english import PREPOSITIONS
from kbqa.datasets.from_graph.paraphrasing import Asked, Paraphraser
from kbqa.datasets.from_graph.reading import MAX_PAIRS, ReadGraph, read_graph
from kbqa.datasets.world.asking import Asker
from kbqa.datasets.world.lexicon import NOUN, VERB, Inflections, Lexicon
from kbqa.datasets.world.members import members
from kbqa.datasets.world.operations import OPERATIONS
from kbqa.datasets.world.walks import Limits
from kbqa.errors import DatasetError, LogicalFormError
from kbqa.kg.forms import NameTable, leaf_of
from kbqa.kg.ranking.encoders import words
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.algebra import (
    Ask,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Relation,
    conjuncts,
    entities,
    relations,
)
from kbqa.logical_forms.compiler import FormVocabulary
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.trajectory import Hop, Question

MAX_ANSWERS = 20
TEMPLATE, LEXICON, BY_MODEL = "template", "lexicon", "model:"
"""Where a wording comes from, in `Question.wording`; BY_MODEL is followed by the model's name."""

_LIMITS = Limits(answers=MAX_ANSWERS, members=60, lookups=80, returns=True, hops=(1, 1, 2, 2, 2, 3, 3, 3))
_OVERUSE = 2.0  # times the mean use of a relation, beyond which it is not asked for
_SLACK = 5  # uses that any relation may have
_PATIENCE = 2_000  # tries for a question, before a relation may be overused
_SMALL = PREPOSITIONS | {"has", "have", "is", "be", "was", "the", "a", "an"}
_ATTEMPTS = 5  # questions that are drawn for each that is wanted, at most


@dataclass
class Made:
    """Questions, and what became of the graph's relations and of other drafts.

    Attributes:
        dropped: reason → drafts.
        relations: number of those that the graph has, without those in `left_out`.
        uses: relation → questions.
        wordless: relations whose words say nothing in English.
        cut: relations of which only a part was read.
        left_out: reason → relations that were not read.
        after_graph: (relation, noun) if the heads of that relation are called after the graph.
        refused: reason → wordings of a chat model that were not taken.
        model_error: what the last failure of the chat model said.
    """

    questions: list[Question]
    relations: int
    dropped: Counter[str] = field(default_factory=Counter)
    uses: Counter[str] = field(default_factory=Counter)
    wordless: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    after_graph: tuple[str, str] | None = None
    refused: Counter[str] = field(default_factory=Counter)
    model_error: str = ""

    @property
    def paraphrased(self) -> int:
        """Questions in the words of a chat model."""
        return sum(question.wording.startswith(BY_MODEL) for question in self.questions)


def make_questions(
    store: GraphStore,
    kg: str,
    count: int,
    seed: int = 0,
    *,
    called: Mapping[str, str] | None = None,
    max_pairs: int = MAX_PAIRS,
    paraphraser: Paraphraser | None = None,
    report: Callable[[int], None] = lambda _: None,
    report_reworded: Callable[[int], None] = lambda _: None,
) -> Made:
    """Make up to `count` questions about a graph; fewer if it has no more.

    Args:
        kg: name of the graph; in the plural, it is what a graph without classes calls its subjects.
        called: relation → noun for its heads, in a graph that declares no classes.
        max_pairs: of a relation that are read.
        paraphraser: says the questions in other words, as far as these pass all checks.
        report: is told the number of questions so far.
        report_reworded: is told how many of them the paraphraser has been asked for.

    Raises:
        DatasetError: WordNet or lemminflect is missing, or no question can be made of the graph.
        GraphError: a query failed.
    """
    lexicon, inflections = Lexicon.load(), Inflections()
    rng = random.Random(f"questions/{seed}")
    graph = read_graph(store, rng, max_pairs)
    _check_called(called or {}, {relation.id for relation in graph.relations})
    described = describe(graph, lexicon, inflections, rng, called, kg)
    made = Made(
        [],
        len(graph.relations),
        wordless=described.wordless,
        cut=graph.cut,
        left_out=graph.left_out,
        after_graph=described.after_graph,
    )
    making = _Making(store, kg, described, rng, made, _Origin(graph, inflections))
    making.make(count, report)
    if paraphraser is not None:
        making.paraphrase(paraphraser, report_reworded)
    if not made.questions:
        raise DatasetError(
            f"{kg}: no question could be made ({_listed(made.dropped)}): its entities need names, and its "
            "relations names or labels in English"
        )
    return made


def _check_called(called: Mapping[str, str], known: set[str]) -> None:
    for relation in called:
        if relation not in known:
            listed = ", ".join(sorted(known)[:10])
            raise DatasetError(
                f'--heads: the graph has no relation "{relation}" to ask about (it has: {listed})'
            )


def _listed(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in dropped.items()) or "none could be drawn"


class _Origin:
    """Tells where the words of a question come from that a template has made."""

    def __init__(self, graph: ReadGraph, inflections: Inflections) -> None:
        self.words: Mapping[str, str] = {relation.id: relation.words for relation in graph.relations}
        self._inflect = inflections
        self._known: dict[str, frozenset[str]] = {}

    def of(self, text: str, form: Expression) -> str:
        """LEXICON if a relation is said by other words than the graph's, else TEMPLATE."""
        said = self._lemmas(words(text))
        own = (self._lemmas(self.words[name].lower()) for name in relations(form) if name in self.words)
        return TEMPLATE if all(not lemmas.isdisjoint(said) for lemmas in own) else LEXICON

    def _lemmas(self, text: str) -> set[str]:
        """The words of a text, and what they are forms of, without the small words."""
        found = set[str]()
        for token in text.split():
            if token not in self._known:
                forms = (*self._inflect.lemmas(token, NOUN), *self._inflect.lemmas(token, VERB))
                self._known[token] = frozenset({token, *forms}) - _SMALL
            found |= self._known[token]
        return found


class _Making:
    def __init__(
        self,
        store: GraphStore,
        kg: str,
        described: Described,
        rng: random.Random,
        made: Made,
        origin: _Origin,
    ) -> None:
        self._store, self._kg, self._facts, self._rng, self._made = store, kg, described.facts, rng, made
        self._origin = origin
        self._usable, self._cut = described.relations, frozenset(made.cut)
        terms = FormVocabulary(
            entity=store.entity_term,
            relation=store.relation_term,
            ontology_class=store.entity_term,
            type_predicate=NameTable(store).type_path(),
        )
        self._asker = Asker(described.facts, kg, rng, _LIMITS, terms)
        self._texts: dict[str, Question | None] = {}  # None: ambiguous

    def make(self, count: int, report: Callable[[int], None]) -> None:
        """Ask in the shares of the operations until there are enough questions, or no more."""
        shares = {"path": len(OPERATIONS) - 1} | {name: 1 for name in OPERATIONS if name != "path"}
        for operation in ("time", "dead end"):  # need terms of office, and decoys
            del shares[operation]
        for number in range(_ATTEMPTS * count):
            if len(self._made.questions) >= count or not shares:
                break
            operation = self._rng.choices(list(shares), list(shares.values()))[0]
            try:
                question = self._asker.ask(f"{self._kg}-{number:06}", operation, self._accepts)
            except DatasetError:
                del shares[operation]
                continue
            self._keep(question)
            report(len(self._made.questions))

    def paraphrase(self, paraphraser: Paraphraser, report: Callable[[int], None]) -> None:
        """Put questions into a chat model's words, where these pass the checks that the template's passed."""
        questions = self._made.questions
        forms = [parse_s_expression(question.form) for question in questions]
        asked = [
            Asked(
                question.text,
                tuple(self._facts.names[entity] for entity in entities(form)),
                tuple(self._origin.words[name] for name in relations(form)),
            )
            for question, form in zip(questions, forms, strict=True)
        ]
        for number, reworded in enumerate(paraphraser.reword(asked)):
            question = replace(
                questions[number], text=reworded.text, wording=f"{BY_MODEL}{paraphraser.model}"
            )
            reason = reworded.refused or self._said_before(questions[number], question)
            if not reason:
                _, reason = self._verified(question, forms[number])
            if reason:
                self._made.refused[reason] += 1
            else:
                self._texts[words(question.text)] = question
                questions[number] = question
            report(number + 1)
        self._made.model_error = paraphraser.error

    def _said_before(self, before: Question, question: Question) -> str:
        """Why new words for a question are not taken: it, or another one, has them."""
        key = words(question.text)
        if key == words(before.text):
            return "the same words"
        if key not in self._texts:
            return ""
        other = self._texts[key]
        if other is not None and set(other.answers) == set(question.answers):
            return "another question says the same"
        return "same words, other answers"

    def _accepts(self, form: Expression, tries: int) -> bool:
        """Whether a form can be executed, and uses no relation much more often than others are used."""
        source = form.source if isinstance(form, Count | Ask) else form
        if all(isinstance(one, Comparison) for one in conjuncts(source)):
            return False
        used = relations(form)
        most = _OVERUSE * self._made.uses.total() / len(self._usable) + _SLACK
        return tries > _PATIENCE or all(self._made.uses[name] < most for name in used)

    def _keep(self, question: Question) -> None:
        form = parse_s_expression(question.form)
        answers, reason = self._verified(question, form)
        if not reason:
            origin = self._origin.of(question.text, form)
            question = replace(question, answers=answers, wording=origin)
            reason = self._repeats(question)
        if reason:
            self._made.dropped[reason] += 1
            return
        self._made.questions.append(question)
        self._made.uses.update(relations(form))

    def _verified(self, question: Question, form: Expression) -> tuple[tuple[str, ...], str]:
        """The graph's own answers, or the reason why the question is dropped."""
        is_count, is_ask = isinstance(form, Count), isinstance(form, Ask)
        source = form.source if isinstance(form, Count | Ask) else form
        try:
            page = self._store.members(source, limit=1_000 if is_count else MAX_ANSWERS + 1)
        except LogicalFormError:
            return (), "the graph cannot list the members of its form"
        if not page.total:
            return (), "no answer"
        if not page.complete or (not (is_count or is_ask) and page.total > MAX_ANSWERS):
            return (), "too many answers"
        answers: tuple[str, ...] = (str(page.total),)
        if isinstance(form, Ask):
            answers = (str(self._store.contains(source, form.node)).lower(),)
        elif not is_count:
            leaves = [leaf_of(self._store, item.id) for item in page.items]
            if not {x.id for x in leaves if isinstance(x, Entity)}.isdisjoint(entities(form)):
                return (), "the question is about the answer"
            answers = tuple(sorted(x.id if isinstance(x, Entity) else x.lexical for x in leaves))
            said = f" {words(question.text)} "
            if any(f" {words(item.label)} " in said for item in page.items):
                return (), "the question names the answer"
        if answers != question.answers:
            is_cut = not self._cut.isdisjoint(relations(form))
            part = "only a part of a relation was read" if is_cut else "the graph also has other answers"
            return (), part
        if self._is_detour(question, form):
            return (), "a shorter question has the same answers"
        if self._is_ambiguous(form):
            return (), "two entities of one kind have the name"
        return answers, ""

    def _is_detour(self, question: Question, form: Expression) -> bool:
        """Whether a path goes back and forth for nothing: the year of the films of the year of Heat."""
        hops = question.path
        for at in range(len(hops) - 1) if len(hops) > 2 else ():
            if hops[at + 1] != Hop(hops[at].relation, not hops[at].inverse):
                continue
            [topic] = entities(form)
            shorter: Entity | Expression = Entity(topic)
            for hop in (*hops[:at], *hops[at + 2 :]):
                shorter = Join(Relation(hop.relation, inverse=not hop.inverse), shorter)
            assert not isinstance(shorter, Entity), "at least one hop is left"
            found = members(self._facts, shorter)
            if {one.lexical if isinstance(one, Literal) else one for one in found} == set(question.answers):
                return True
        return False

    def _is_ambiguous(self, form: Expression) -> bool:
        facts = self._facts
        for entity in entities(form):
            kinds = Counter(facts.kinds[bearer] for bearer in facts.bearers[facts.names[entity]])
            if kinds[facts.kinds[entity]] > 1:
                return True
        return False

    def _repeats(self, question: Question) -> str:
        """Why a question is dropped for one with the same words; both are, if the answers differ."""
        key = words(question.text)
        if key not in self._texts:
            self._texts[key] = question
            return ""
        earlier = self._texts[key]
        if earlier is not None and set(earlier.answers) == set(question.answers):
            return "another question says the same"
        if earlier is not None:
            self._texts[key] = None
            self._made.questions.remove(earlier)
            self._made.uses.subtract(relations(parse_s_expression(earlier.form)))
            self._made.dropped["same words, other answers"] += 1
        return "same words, other answers"
