"""`expand`: the members of a logical form, and the forms to which it can be expanded.

    expand {topics: ["Heat"], question: "…"}             one join for each relation of Heat, and classes
    expand {form: "(JOIN (R directed_by) Heat)", …}      the director, and what can be done with him next

A topic may also be a literal, given by its id: `"Toulouse"` leads back to (JOIN locality "Toulouse").

As in Pangu (Gu et al. 2023), an agent chooses among forms instead of writing one: every expansion is a
whole form that has members (a comparison, one that may have), and its operations are those of KBQA-R1
(Table II). An agent begins without a form, and ends at the form whose members answer the question.

    start   all members of a class                       (film.film)
    join    to what a relation leads to                  (JOIN (R directed_by) …); back: (JOIN directed_by …)
    keep    the members with a path to another topic     (AND … (JOIN starring Al Pacino))
    max     the members with the greatest value; min     (ARGMAX … runtime)
    gt      the members whose value is greater than one that the question mentions; ge, lt, le
    at      the members whose interval includes a time that the question mentions      (TC … from 2009)
    type    the members of a class                       (AND (film.film) …)
    count   their number                                 (COUNT …)
    ask     whether another topic is one of them         (ASK … Al Pacino)

No join leads to a topic that the form names, unless the form has no members otherwise: the father of the
children of X is X. A join that goes straight back by the relation before is not listed where it leads back
to a topic alone, or to more than `MAX_SHARING` entities: people ask for the films with the director of Heat,
and not for all films of its genre. `return` keeps the topics in all sets.

A form can only `ask` if that is wanted (`ask`), since policies from before it was there do not know it.

With `missing`, joins are listed apart that lead nowhere, with relations that others like these nodes have: a
question may be about a fact that the graph lacks.

With `ahead`, each join also says which relations the nodes have that it leads to. In "the nationality of
Heat's director", a nationality lies behind the director and behind no actor's gender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kbqa.errors import LogicalFormError
from kbqa.kg.actions import EXPAND, ActionResult, ErrorKind, Failure, Item, Success, Triple
from kbqa.kg.arguments import (
    FLAG,
    QUESTION,
    TEXT,
    Argument,
    ArgumentKind,
    whole_number,
)
from kbqa.kg.forms import leaf_of, leaves
from kbqa.kg.handlers import Surroundings, failure, paging, resolved_entities
from kbqa.kg.retrieval.expressions import Unanswered, form_failure, number, read_expression, truth
from kbqa.kg.retrieval.look_ahead import MAX_FOLLOWED, MAX_SHARING, Hop, behind, fitting
from kbqa.kg.retrieval.missing import missing
from kbqa.kg.retrieval.node_relations import INSTRUCTION
from kbqa.kg.retrieval.ways import way
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import MAX_SURROUNDED, Attribute, Bond, Page, Survey
from kbqa.kg.values import literal_value
from kbqa.logical_forms.algebra import (
    MAX_NODES,
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Extreme,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.mentions import Mentioned, bounds, mentioned
from kbqa.logical_forms.s_expression import print_s_expression

MAX_EXPANSIONS = 200
MAX_TOPICS = 16  # each is surveyed
_CLASSES = 12  # classes with which a form may begin
_MAX_MISSING = 12  # joins listed that lead nowhere
_MAX_WAYS = 10  # members of a form for which the facts are listed that lead to them
_LARGEST = 6  # operators and leaves that an operation adds to a form, at most


class Operation(StrEnum):
    """What an expansion does."""

    START = "start"
    JOIN = "join"
    KEEP = "keep"
    MAX = "max"
    MIN = "min"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"
    AT = "at"
    TYPE = "type"
    COUNT = "count"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Expansion:
    """A form made longer by one operation.

    Attributes:
        path: the relations of the operation, each with whether it is followed from tail to head.
        operand: the class, the topic, the value or the time, if the operation has one.
        is_date: whether the operation compares dates.
        of: class of the topic that a join begins at, where another topic has the same name.
        behind: relations of the nodes that a join leads to, each like those of the path.
    """

    form: Expression
    operation: Operation
    path: tuple[Hop, ...] = ()
    operand: Item | None = None
    is_date: bool = False
    of: str = ""
    behind: tuple[Hop, ...] = ()

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {
            "form": print_s_expression(self.form),
            "operation": self.operation,
            "path": _hops(self.path),
        }
        if self.operand is not None:
            written["operand"] = {"id": self.operand.id, "label": self.operand.label}
        if self.behind:
            written["behind"] = _hops(self.behind)
        return written | ({"date": True} if self.is_date else {}) | ({"of": self.of} if self.of else {})


def _hops(relations: Sequence[Hop]) -> list[dict[str, Any]]:
    return [{"id": r.id, "label": r.label, "inverse": inverse} for r, inverse in relations]


TOPICS = ArgumentKind(
    lambda value: isinstance(value, list) and len(value) <= MAX_TOPICS and all(map(TEXT.fits, value)),
    f"a list of at most {MAX_TOPICS} texts",
    {"type": "array", "items": {"type": "string"}, "maxItems": MAX_TOPICS},
)
OPERATIONS = ArgumentKind(
    lambda value: isinstance(value, list) and all(TEXT.fits(one) and one in set(Operation) for one in value),
    f"a list of {', '.join(Operation)}",
    {"type": "array", "items": {"enum": list(Operation)}},
)


def _expand(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    try:
        form = read_expression(arguments["form"]) if "form" in arguments else None
        expanding = _Expanding(surroundings, arguments, form)
        return expanding.begin() if form is None else expanding.proceed(form)
    except Unanswered as unanswered:
        return unanswered.failure
    except LogicalFormError as error:
        return form_failure(error)


class _Expanding:
    """One call: what is asked, and what the graph has."""

    def __init__(
        self, surroundings: Surroundings, arguments: Mapping[str, Any], form: Expression | None
    ) -> None:
        self._surroundings, self._store = surroundings, surroundings.store
        self._arguments, self._form = arguments, form
        self._question = arguments["question"]
        self._wanted = frozenset(arguments.get("operations", Operation))
        self._returns = arguments.get("return", False)
        # The nodes from which joins lead: of each topic, or the members of the form (None).
        self._nodes: dict[str | None, Sequence[str]] = {}
        named = set() if form is None else set(leaves(form))
        self._missing: list[tuple[Expansion, Sequence[str]]] = []  # joins, and nodes from which they lead
        # What the form says of each topic, which is an entity or a literal.
        self._topics = {
            topic: leaf
            for topic in arguments.get("topics", ())
            if (leaf := leaf_of(self._store, topic)) not in named
        }

    def begin(self) -> ActionResult:
        """The joins from each topic, and the classes with which a question may begin."""
        known: dict[str, tuple[Item, Survey]] = {}
        unknown: list[Failure] = []
        for topic in self._topics:
            ids = resolved_entities(self._store, topic)
            if isinstance(ids, Failure):
                unknown.append(ids)
            else:
                labelled = self._store.items(ids[:1]).get(ids[0], Item(topic, topic))
                survey = self._store.survey(ids)
                known[topic] = Item(topic, labelled.label), survey
                self._nodes[topic] = ids
        named = Counter(item.label for item, _ in known.values())
        expansions: list[Expansion] = []
        for item, survey in known.values():
            of = survey.classes[0][0].label if named[item.label] > 1 and survey.classes else ""
            expansions += self._joins(self._topics[item.id], survey, item, of)
            self._miss(self._topics[item.id], survey, self._nodes[item.id], item, of)
        if Operation.START in self._wanted:
            expansions += self._starts()
        if not expansions and unknown:
            return unknown[0]
        limit, offset = paging(self._surroundings, self._arguments)
        items = tuple(item for item, _ in known.values())
        return self._answer(Page(items[offset : offset + limit], len(items)), expansions)

    def proceed(self, form: Expression) -> ActionResult:
        """The members of a form, and what it can be expanded to."""
        limit, offset = paging(self._surroundings, self._arguments)
        if isinstance(form, Count):
            counted = self._members(form.source, 0)
            return self._answer(Page((number(self._store, counted.total),), 1, counted.complete), [])
        if isinstance(form, Ask):
            asked = resolved_entities(self._store, form.node.id) if isinstance(form.node, Entity) else ()
            if isinstance(asked, Failure):
                return asked
            holds = self._store.contains(form.source, form.node, returning=self._returns)
            return self._answer(Page((truth(self._store, holds),), 1), [])
        found = self._members(form, limit, offset)
        if not found.total:
            text = print_s_expression(form)
            return failure(ErrorKind.NO_ENTITIES_FOUND, f"No entities found for {text} in knowledge graph")
        if form.size + _LARGEST > MAX_NODES:
            return self._answer(found, [])
        survey = self._store.survey(form, tuple(self._topics), returning=self._returns)
        self._nodes[None] = [item.id for item in found.items]
        expansions = list(self._joins(form, survey))
        self._miss(form, survey, self._nodes[None])
        if found.total > 1:
            expansions += self._selections(form, survey, found.total)
        expansions += self._if_wanted(Count(form), Operation.COUNT)
        if self._arguments.get("ask", False):
            for topic, leaf in self._topics.items():
                expansions += self._if_wanted(
                    Ask(form, leaf), Operation.ASK, operand=Item(topic, self._label(topic))
                )
        return self._answer(found, expansions)

    def _members(self, form: Expression, limit: int, offset: int = 0) -> Page:
        """The members of the form; those that come back to the topics only where there are no others."""
        found = self._store.members(form, limit=limit, offset=offset, returning=self._returns)
        if found.total or self._returns:
            return found
        self._returns = True
        return self._store.members(form, limit=limit, offset=offset, returning=True)

    def _joins(
        self, form: Entity | Literal | Expression, survey: Survey, topic: Item | None = None, of: str = ""
    ) -> Iterator[Expansion]:
        """One hop along each relation of the members, in both directions."""
        if Operation.JOIN not in self._wanted:
            return
        for relations, inverse in ((survey.into, True), (survey.out, False)):
            for relation in relations:
                longer = _joined(form, (relation, inverse))
                if not self._turns_back(longer):
                    yield Expansion(longer, Operation.JOIN, ((relation, inverse),), topic, of=of)

    def _miss(
        self,
        form: Entity | Literal | Expression,
        survey: Survey,
        nodes: Sequence[str],
        topic: Item | None = None,
        of: str = "",
    ) -> None:
        """Note the joins that lead nowhere from nodes, and from others like them somewhere."""
        # Over a network, a query for each relation would take too long.
        wanted = self._arguments.get("missing", False) and Operation.JOIN in self._wanted
        if wanted and not self._store.is_remote:
            hops, others = missing(self._store, nodes, survey)
            for hop in hops:
                longer = Expansion(_joined(form, hop), Operation.JOIN, (hop,), topic, of=of)
                self._missing.append((longer, others))

    def _turns_back(self, join: Join) -> bool:
        """Whether a join goes straight back to nothing new, or to too much.

        The director of the films by Mann is Mann; the films in the language of Heat are half of the graph.
        """
        before = join.source
        while isinstance(before, Superlative | Timed):
            before = before.source
        return (
            isinstance(before, Join)
            and before.relation == Relation(join.relation.name, inverse=not join.relation.inverse)
            and not 0 < self._store.members(join, limit=0, returning=self._returns).total <= MAX_SHARING
        )

    def _starts(self) -> Iterator[Expansion]:
        # The types of the store, since a subgraph does not have all of its graph's.
        ranked = self._surroundings.schema.types.rank(self._question, self._store.types(), top_k=_CLASSES)
        return (Expansion(Class(item.id), Operation.START, operand=item) for item in ranked)

    def _selections(self, form: Expression, survey: Survey, total: int) -> Iterator[Expansion]:
        """The forms that have some, but not all of the members."""
        asked = mentioned(self._question)
        for topic, bonds in survey.bonds.items():
            yield from self._bound(form, topic, bonds, total)
        for attribute in survey.attributes:
            yield from self._valued(form, attribute, asked, total)
        for kind, count in survey.classes:
            if count < total:
                yield from self._if_wanted(And(Class(kind.id), form), Operation.TYPE, operand=kind)
        for begins in survey.intervals:
            for time in asked.times:
                yield from self._at(form, begins, time, total)

    def _bound(self, form: Expression, topic: str, bonds: Sequence[Bond], total: int) -> Iterator[Expansion]:
        """The members with a path to another topic."""
        label = self._label(topic)
        for bond in bonds:
            if bond.members < total:
                other: Entity | Literal | Expression = self._topics[topic]
                for relation, inverse in reversed(bond.path):
                    other = Join(Relation(relation.id, inverse), other)
                assert not isinstance(other, Entity | Literal)  # a bond has a relation
                kept = And(form, other)
                yield from self._if_wanted(kept, Operation.KEEP, bond.path, Item(topic, label))

    def _label(self, topic: str) -> str:
        found = self._store.items(self._store.resolve_entity(topic))
        return next(iter(found.values())).label if found else topic

    def _valued(
        self, form: Expression, attribute: Attribute, asked: Mentioned, total: int
    ) -> Iterator[Expansion]:
        """The members with an extreme value, or one on a side of a number or date that the question mentions.

        An expansion of which the values show that it has none or all of the members is left out. They show
        nothing about members that were not surveyed.
        """
        path = tuple((relation, False) for relation in attribute.path)
        relations = tuple(Relation(relation.id) for relation in attribute.path)
        least, greatest = attribute.least, attribute.greatest
        is_partial = attribute.members < total
        if is_partial or least.key < greatest.key:
            for operation, extreme in ((Operation.MAX, Extreme.MAX), (Operation.MIN, Extreme.MIN)):
                most = Superlative(extreme, form, relations)
                yield from self._if_wanted(most, operation, path, is_date=least.is_date)
        is_surveyed = total <= MAX_SURROUNDED
        for mention, literals in bounds(asked, attribute.datatype):
            for comparator, literal in literals.items():
                bound = literal_value(literal)
                if bound is not None and is_surveyed:
                    holds = [comparator.holds(value.key, bound.key) for value in (least, greatest)]
                    if not any(holds) or (all(holds) and not is_partial):
                        continue
                compared = And(form, Comparison(comparator, relations, literal))
                operand = Item(mention, mention)
                yield from self._if_wanted(
                    compared, Operation(comparator.value), path, operand, is_date=least.is_date
                )

    def _at(self, form: Expression, begins: Item, time: str, total: int) -> Iterator[Expansion]:
        """The members whose interval includes a time."""
        timed = Timed(form, Relation(begins.id), time)
        wanted = list(self._if_wanted(timed, Operation.AT, ((begins, False),), Item(time, time)))
        # Nothing shows how many these are, and such questions are rare.
        if wanted and 0 < self._store.members(timed, limit=0, returning=self._returns).total < total:
            yield from wanted

    def _if_wanted(
        self,
        form: Expression,
        operation: Operation,
        path: tuple[Hop, ...] = (),
        operand: Item | None = None,
        *,
        is_date: bool = False,
    ) -> Iterator[Expansion]:
        if operation in self._wanted:
            yield Expansion(form, operation, path, operand, is_date)

    def _answer(self, page: Page, expansions: Sequence[Expansion]) -> ActionResult:
        most = self._arguments.get("expansions", MAX_EXPANSIONS)
        if self._form is None:
            about: dict[str, Any] = {"topics": {item.id: {"label": item.label} for item in page.items}}
        else:
            about = {"expression": print_s_expression(self._form)}
            if self._returns:
                about["return"] = True
            if not self._store.is_remote and not isinstance(self._form, Count | Ask):
                ways = [way(self._store, self._form, item.id) for item in page.items[:_MAX_WAYS]]
                about["ways"] = [[list(fact) for fact in facts] for facts in ways]
        return Success(
            page.items,
            page.total,
            truncated=not page.complete or self._arguments.get("offset", 0) + len(page.items) < page.total,
            details={**about, **self._listed(expansions, most)},
        )

    def _listed(self, expansions: Sequence[Expansion], most: int) -> dict[str, Any]:
        """The best expansions and what is missing, if asked with what lies behind the joins."""
        best = self._best(expansions, most)
        others = {id(one): nodes for one, nodes in self._missing}
        lacking = self._best([one for one, _ in self._missing], _MAX_MISSING)
        listed = [*best, *lacking]
        # Over a network, one query for each join would take too long.
        if self._arguments.get("ahead", False) and not self._store.is_remote:
            found = [self._behind(one, others.get(id(one))) for one in listed]
            fit = fitting(found, self._question, self._surroundings.schema.relations)
            listed = [replace(one, behind=tuple(hops)) for one, hops in zip(listed, fit, strict=True)]
        told = [one.to_json() for one in listed]
        return {"expansions": told[: len(best)]} | ({"missing": told[len(best) :]} if lacking else {})

    def _behind(self, expansion: Expansion, others: Sequence[str] | None) -> list[Hop]:
        """What lies behind a join of its nodes, or of others like them."""
        if expansion.operation is not Operation.JOIN:
            return []
        topic = expansion.operand.id if expansion.operand is not None else None
        nodes = self._nodes[topic][:MAX_FOLLOWED] if others is None else others
        return behind(self._store, nodes, expansion.path[0])

    def _best(self, expansions: Sequence[Expansion], most: int) -> Sequence[Expansion]:
        """The expansions; if there are too many, the joins whose relation fits the question best.

        Other expansions come first, for up to half of the places, and for those that joins do not need.
        """
        if len(expansions) <= most:
            return expansions
        joins = [one for one in expansions if one.operation is Operation.JOIN]
        others = [one for one in expansions if one.operation is not Operation.JOIN]
        others = others[: max(most - len(joins), most // 2)]
        relations = {one.path[0][0].id: one.path[0][0] for one in joins}
        ranked = self._surroundings.schema.relations.rank(
            self._question, relations.values(), instruction=INSTRUCTION
        )
        places = {item.id: place for place, item in enumerate(ranked)}
        joins.sort(key=lambda one: places[one.path[0][0].id])
        return [*joins[: most - len(others)], *others]


def _joined(form: Entity | Literal | Expression, hop: Hop) -> Join:
    """One hop from the members of a form."""
    relation, inverse = hop
    if isinstance(form, Class):
        form = And(form, form)  # JOIN takes no bare class
    # A form describes a node by what it is linked to, so its relation is read the other way.
    return Join(Relation(relation.id, inverse=not inverse), form)


def _cites(
    arguments: Mapping[str, Any], items: Sequence[str], details: Mapping[str, Any]
) -> list[tuple[Triple, ...]]:
    told = [tuple((s, r, o) for s, r, o in facts) for facts in details.get("ways", ())]
    return told + [() for _ in items[len(told) :]]


ACTIONS.register(
    ActionSpec(
        EXPAND,
        "List the members of a logical form and the longer forms that the graph has. Begin without a form, "
        "then pass one of the forms that were listed, until its members answer the question.",
        _expand,
        {"question": QUESTION},
        {
            "form": Argument(TEXT, "an S-expression, one of the forms that were listed"),
            "topics": Argument(
                TOPICS, "the entities and values that the question names, by id or exact label"
            ),
            "operations": Argument(OPERATIONS, "operations that are wanted; all by default"),
            "expansions": Argument(whole_number(0), f"forms to list at most; {MAX_EXPANSIONS} by default"),
            "return": Argument(
                FLAG,
                "whether a form may come back to the topics, which are otherwise left out where it has other "
                "members",
            ),
            "ask": Argument(
                FLAG, "whether to list forms that ask whether a topic is a member; they answer true or false"
            ),
            "missing": Argument(
                FLAG,
                "whether to list joins that lead nowhere, with relations that others have which share a "
                "neighbour with these nodes; not at an endpoint",
            ),
            "ahead": Argument(
                FLAG,
                "whether each join lists the relations of the nodes that it leads to; not at an endpoint",
            ),
        },
        answers="Items are the members of the form; without a form, the topics. Details: `expansions`, each "
        "with its `form`, its `operation`, the `path` of relations of the operation (`id`, `label`, and "
        "`inverse` if it is followed from tail to head), and its `operand`: a class, a topic, a value or a "
        "time; `date` if dates are compared; `of`, the class of a topic that shares its name with another; "
        "`behind`, with `ahead`, the relations of the nodes that a join leads to, like `path`. "
        "If there are too many, the relations that fit the `question` best. `missing`, if asked for, has "
        "joins that lead nowhere, written like `expansions`. `topics` has the `label` of each where a form "
        "begins; `expression` is the form, if there is one, and `return` is true if it comes back to the "
        "topics. `ways` has for each of the first members the facts of one way from the form's entities to "
        "it; not at an endpoint.",
        errors=(
            ErrorKind.ENTITY_NOT_IN_KG,
            ErrorKind.NO_ENTITIES_FOUND,
            ErrorKind.QUERY_SYNTAX,
        ),
        cites=_cites,
    )
)
