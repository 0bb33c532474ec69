"""`expand`: the members of a logical form, and the forms to which it can be expanded.

    expand {topics: ["Heat"], question: "…"}             one join for each relation of Heat, and classes
    expand {form: "(JOIN (R directed_by) Heat)", …}      the director, and what can be done with him next

A topic may also be a literal, given by its id: `"Toulouse"` leads back to (JOIN locality "Toulouse").

The forms and their operations: `kbqa.kg.retrieval.expansions`. A form leaves out the topics that it names,
unless it has no other members; `return` keeps the topics in all sets.

A form can only `ask` if that is wanted (`ask`), since policies from before it was there do not know it.

With `missing`, joins are listed apart that lead nowhere, with relations that others like these nodes have, or
that graphs commonly have and this one lacks: a question may be about a fact that the graph lacks.

Nodes without names, which hold the parts of a fact, are members on the way, and no answers: `nameless`.

With `through`, two joins through such nodes are listed as one, too: what leads to a term of office and from
there to the mayor.

With `ahead`, each join also says which relations the nodes have that it leads to. In "the nationality of
Heat's director", a nationality lies behind the director and behind no actor's gender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from kbqa.kg.common_relations import asked_for
from kbqa.kg.forms import leaf_of, leaves
from kbqa.kg.handlers import Surroundings, failure, paging, resolved_entities
from kbqa.kg.namespaces import local_name
from kbqa.kg.retrieval.asked_class import asked_class, broader, whole_class
from kbqa.kg.retrieval.compound_values import is_nameless
from kbqa.kg.retrieval.direction import asked_direction
from kbqa.kg.retrieval.expansions import LARGEST, Expansion, Expansions, Operation, Source
from kbqa.kg.retrieval.expressions import Unanswered, form_failure, number, read_expression, truth
from kbqa.kg.retrieval.look_ahead import MAX_FOLLOWED, behind, fitting, hops_of, steps
from kbqa.kg.retrieval.node_relations import INSTRUCTION
from kbqa.kg.retrieval.ways import way
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import Page, Survey
from kbqa.logical_forms.algebra import MAX_NODES, Ask, Class, Count, Entity, Expression
from kbqa.logical_forms.s_expression import print_s_expression

MAX_EXPANSIONS = 200
MAX_TOPICS = 16  # each is surveyed
_MAX_MISSING = 12  # joins listed that lead nowhere
_MAX_WAYS = 10  # members of a form for which the facts are listed that lead to them


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
        self._returns = arguments.get("return", False)
        # Whether a join leads to the class that is asked for, and no member is of it.
        self._is_elsewhere = False
        named = set() if form is None else set(leaves(form))
        # What the form says of each topic, which is an entity or a literal.
        self._topics = {
            topic: leaf
            for topic in arguments.get("topics", ())
            if (leaf := leaf_of(self._store, topic)) not in named
        }

    def begin(self) -> ActionResult:
        """The joins from each topic, and the classes with which a question may begin."""
        known: list[tuple[Item, Sequence[str], Survey]] = []
        unknown: list[Failure] = []
        for topic in self._topics:
            ids = resolved_entities(self._store, topic)
            if isinstance(ids, Failure):
                unknown.append(ids)
            else:
                labelled = self._store.items(ids[:1]).get(ids[0], Item(topic, topic))
                known.append((Item(topic, labelled.label), ids, self._store.survey(ids)))
        named = Counter(item.label for item, _, _ in known)
        expansions = self._expansions()
        starts = list(expansions.starts())
        whole = [one for one in starts if self._is_whole(one.form)]
        if whole:
            return self._answer(Page((), 0), whole)
        joins: list[Expansion] = []
        lacking: list[Expansion] = []
        for item, nodes, survey in known:
            of = survey.classes[0][0].label if named[item.label] > 1 and survey.classes else ""
            source = Source(self._topics[item.id], nodes, survey, item, of)
            joins += self._asked(item, self._joins(expansions, source))
            lacking += self._missing(expansions, source)
        found = [*joins, *starts]
        if not found and unknown:
            return unknown[0]
        limit, offset = paging(self._surroundings, self._arguments)
        items = tuple(item for item, _, _ in known)
        return self._answer(Page(items[offset : offset + limit], len(items)), found, lacking)

    def proceed(self, form: Expression) -> ActionResult:
        """The members of a form, and what it can be expanded to."""
        limit, offset = paging(self._surroundings, self._arguments)
        if isinstance(form, Count):
            counted = self._members(form.source, 0)
            return self._answer(Page((number(self._store, counted.total),), 1, counted.complete))
        if isinstance(form, Ask):
            asked = resolved_entities(self._store, form.node.id) if isinstance(form.node, Entity) else ()
            if isinstance(asked, Failure):
                return asked
            holds = self._store.contains(form.source, form.node, returning=self._returns)
            return self._answer(Page((truth(self._store, holds),), 1))
        members = self._members(form, limit, offset)
        if not members.total:
            text = print_s_expression(form)
            return failure(ErrorKind.NO_ENTITIES_FOUND, f"No entities found for {text} in knowledge graph")
        if form.size + LARGEST > MAX_NODES:
            return self._answer(members)
        if self._is_whole(form):
            return self._answer(members)
        survey = self._store.survey(form, tuple(self._topics), returning=self._returns)
        source = Source(form, [item.id for item in members.items], survey)
        expansions = self._expansions()
        found = list(self._joins(expansions, source))
        self._is_elsewhere = self._leads_to_asked(survey, found)
        lacking = list(self._missing(expansions, source))
        if members.total > 1:
            found += expansions.selections(form, survey, members.total)
        found += expansions.count(form)
        if self._arguments.get("ask", False):
            found += expansions.asks(form)
        return self._answer(members, found, lacking)

    def _members(self, form: Expression, limit: int, offset: int = 0) -> Page:
        """The members of the form; those that come back to the topics only where there are no others."""
        found = self._store.members(form, limit=limit, offset=offset, returning=self._returns)
        if found.total or self._returns:
            return found
        self._returns = True
        return self._store.members(form, limit=limit, offset=offset, returning=True)

    def _is_whole(self, form: Expression) -> bool:
        """Whether the question asks for all members of the form, which is a class, and for nothing else."""
        if self._topics or not isinstance(form, Class):
            return False
        return whole_class(self._question, self._surroundings.schema.classes) == form.name

    def _leads_to_nameless(self, members: Sequence[Item]) -> bool:
        """Whether the form leads from an entity with a name to members without one."""
        assert self._form is not None
        begins = [leaf.id for leaf in leaves(self._form) if isinstance(leaf, Entity)]
        if not (members and begins and all(is_nameless(self._store, item) for item in members)):
            return False
        return not any(is_nameless(self._store, item) for item in self._store.items(begins).values())

    def _leads_to_asked(self, survey: Survey, joins: Iterable[Expansion]) -> bool:
        """Whether the question asks for a class that no member has, and a join leads to some that have it."""
        # An entity without a class may be of any; a value, of which nothing is said, is of none.
        may_be_any = not survey.classes and survey.out
        # Over a network, a query for each join would take too long.
        if may_be_any or self._store.is_remote:
            return False
        asked = asked_class(self._question, self._surroundings.schema.classes)
        if asked is None or asked in broader(self._store, _classes_of(survey)):
            return False
        ends = (self._store.follow(one.nodes, steps(one.path), limit=MAX_FOLLOWED).ends for one in joins)
        return any(
            asked in _classes_of(self._store.survey([item.id for item in page.items])) for page in ends
        )

    def _expansions(self) -> Expansions:
        wanted = frozenset(map(Operation, self._arguments.get("operations", Operation)))
        types = self._surroundings.schema.types
        return Expansions(self._store, types, self._question, self._topics, wanted, self._returns)

    def _joins(self, expansions: Expansions, source: Source) -> Iterator[Expansion]:
        yield from expansions.joins(source)
        # Over a network, a query for each relation would take too long.
        if self._arguments.get("through", False) and not self._store.is_remote:
            yield from expansions.through(source)

    def _asked(self, topic: Item, joins: Iterable[Expansion]) -> Iterator[Expansion]:
        """The joins from a topic, without those against the direction that the question asks for.

        If no join of a relation leads in that direction, the question has to say it more clearly.
        """
        listed = list(joins)
        hops = {join.path[0] for join in listed if len(join.path) == 1}
        for join in listed:
            relation, inverse = join.path[0]
            asked = None
            if len(join.path) == 1:
                asked = self._direction(topic, relation, strictly=(relation, not inverse) not in hops)
            if asked in (None, inverse):
                yield join

    def _direction(self, topic: Item, relation: Item, *, strictly: bool) -> bool | None:
        name = local_name(relation.label)
        return asked_direction(self._question, topic.label, name, strictly=strictly)

    def _missing(self, expansions: Expansions, source: Source) -> Iterable[Expansion]:
        # Over a network, a query for each relation would take too long.
        if not self._arguments.get("missing", False) or self._store.is_remote:
            return ()
        labels = [expansions.label(topic) for topic in self._arguments.get("topics", ())]
        schema = self._surroundings.schema
        asked = [
            relation
            for common in asked_for(self._question, labels, schema.saying)
            for relation in schema.saying[common]
        ]
        lacking = [common.name for common in asked_for(self._question, labels, schema.lacking)]
        elsewhere = () if source.topic is None else self._elsewhere(source, source.topic)
        return (*elsewhere, *expansions.missing(source, asked, lacking))

    def _elsewhere(self, source: Source, topic: Item) -> Iterator[Expansion]:
        """The joins that the question asks for, where the relation leads only the other way.

        Nobody reports to Ann, but she reports to somebody.
        """
        hops = hops_of(source.survey)
        for relation, inverse in hops:
            turned = relation, not inverse
            if turned not in hops and self._direction(topic, relation, strictly=True) is (not inverse):
                yield source.expansion(turned, ())

    def _answer(
        self, page: Page, expansions: Sequence[Expansion] = (), lacking: Sequence[Expansion] = ()
    ) -> ActionResult:
        if self._form is None:
            about: dict[str, Any] = {"topics": {item.id: {"label": item.label} for item in page.items}}
            if len(expansions) == 1 and self._is_whole(expansions[0].form):
                about["whole"] = True
        else:
            about = {"expression": print_s_expression(self._form)}
            if self._returns:
                about["return"] = True
            if self._leads_to_nameless(page.items):
                about["nameless"] = True
            if self._is_elsewhere:
                about["elsewhere"] = True
            if not self._store.is_remote and not isinstance(self._form, Count | Ask):
                ways = [way(self._store, self._form, item.id) for item in page.items[:_MAX_WAYS]]
                about["ways"] = [[list(fact) for fact in facts] for facts in ways]
        return Success(
            page.items,
            page.total,
            truncated=not page.complete or self._arguments.get("offset", 0) + len(page.items) < page.total,
            details={**about, **self._listed(expansions, lacking)},
        )

    def _listed(self, expansions: Sequence[Expansion], lacking: Sequence[Expansion]) -> dict[str, Any]:
        """The best expansions and what is missing, if asked with what lies behind the joins."""
        best = self._best(expansions, self._arguments.get("expansions", MAX_EXPANSIONS))
        lacking = self._best(lacking, _MAX_MISSING)
        listed = [*best, *lacking]
        # Over a network, one query for each join would take too long.
        if self._arguments.get("ahead", False) and not self._store.is_remote:
            found = [
                behind(self._store, one.nodes, one.path)
                if one.operation is Operation.JOIN and one.nodes
                else []
                for one in listed
            ]
            fit = fitting(found, self._question, self._surroundings.schema.relations)
            listed = [replace(one, behind=tuple(hops)) for one, hops in zip(listed, fit, strict=True)]
        told = [one.to_json() for one in listed]
        return {"expansions": told[: len(best)]} | ({"missing": told[len(best) :]} if lacking else {})

    def _best(self, expansions: Sequence[Expansion], most: int) -> Sequence[Expansion]:
        """The expansions; if there are too many, the joins whose relation fits the question best.

        Other expansions come first, for up to half of the places, and for those that joins do not need.
        """
        if len(expansions) <= most:
            return expansions
        joins = [one for one in expansions if one.operation is Operation.JOIN]
        others = [one for one in expansions if one.operation is not Operation.JOIN]
        others = others[: max(most - len(joins), most // 2)]
        # Of two hops through a node without a name, the second says what is at their end.
        relations = {one.path[-1][0].id: one.path[-1][0] for one in joins}
        ranked = self._surroundings.schema.relations.rank(
            self._question, relations.values(), instruction=INSTRUCTION
        )
        places = {item.id: place for place, item in enumerate(ranked)}
        joins.sort(key=lambda one: places[one.path[-1][0].id])
        return [*joins[: most - len(others)], *others]


def _classes_of(survey: Survey) -> list[str]:
    return [kind.id for kind, _ in survey.classes]


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
            "ask": Argument(FLAG, "whether to list forms that ask whether a topic is a member of the set"),
            "missing": Argument(
                FLAG,
                "whether to list joins that lead nowhere, with relations of others that share a neighbour "
                "with these nodes, and with common relations that the question asks for and that the topic "
                "or the graph lacks; not at an endpoint",
            ),
            "through": Argument(
                FLAG,
                "whether to list joins of two hops through nodes that have no names, too; not at an endpoint",
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
        "begins; `whole` is true if the question asks for all members of a class and for nothing else "
        "(*which teams are there*), so that one form is listed. `expression` is the form, if there is one, "
        "and `return` is true if it comes back to the topics. `nameless` is true if the form leads from "
        "entities with names to members without, which hold the parts of a fact and are no answers. "
        "`elsewhere` is true if the question asks for a class by name (*which services*), no member is of "
        "this class, and one of the `expansions` leads to some that are; not at an endpoint. `ways` has for "
        "each of the first members the facts of one way from the form's entities to it; not at an endpoint.",
        errors=(
            ErrorKind.ENTITY_NOT_IN_KG,
            ErrorKind.NO_ENTITIES_FOUND,
            ErrorKind.QUERY_SYNTAX,
        ),
        cites=_cites,
    )
)
