"""KBQA-R1's actions: `find_relation` (Table II, through RRCG) and `execute_logical_form`.

    find_relation {entity | expression, relation}                follows the relation that the text means
    execute_logical_form {expression, gate?, return?, explain?}  the members of a whole logical form

Both return in `details` the `expression` to continue with and, if entities have no names, a
summary of them (`cvt`, see `compound_values`). With `gate`, every relation in the form is gated
in its place. Protocols use this for the relations of Order, Compare and Time_constraint: they
send `(ARGMAX … `text`)`, `(le `text` 5)` or `(TC … `text` NOW)` and receive the grounded form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any

from kbqa.errors import LogicalFormError, QueryError
from kbqa.kg.actions import (
    EXECUTE_LOGICAL_FORM,
    FIND_RELATION,
    ActionResult,
    DatedItem,
    ErrorKind,
    Failure,
    Item,
    Success,
    Triple,
)
from kbqa.kg.arguments import ENTITY, EXPRESSION, FLAG, TEXT, Argument, ArgumentKind
from kbqa.kg.forms import leaf_of, with_ids
from kbqa.kg.handlers import Surroundings, failure, paging, quote
from kbqa.kg.ranking.gating import GATE_ARGUMENTS, OUT, RelationGate
from kbqa.kg.retrieval.compound_values import compound_values
from kbqa.kg.retrieval.expressions import FormEvaluation, Unanswered, form_failure, read_expression
from kbqa.kg.retrieval.grounding import Grounding, Source
from kbqa.kg.specs import ACTIONS, ActionSpec, Run, one_fact_each
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.algebra import Entity, Expression, Literal
from kbqa.logical_forms.compiler import FREEBASE, Distinct
from kbqa.logical_forms.s_expression import parse_literal, print_s_expression

_DAY = ArgumentKind(
    lambda value: isinstance(value, str) and _is_day(value),
    "a day such as 2015-08-10",
    {"type": "string", "format": "date"},
)


def _find_relation(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    if ("entity" in arguments) == ("expression" in arguments):
        message = "Missing required fields for find_relation: either entity_name or expression"
        return failure(ErrorKind.MISSING_REQUIRED_FIELDS, message)
    gate = RelationGate.of(surroundings, arguments)
    if isinstance(gate, Failure):
        return gate
    evaluation = FormEvaluation(surroundings)
    source = _source(evaluation, arguments)
    grounding = Grounding(evaluation, gate)
    joined = grounding.join(arguments["relation"], source)
    [told] = (verdict.details(gate.top_k) for verdict in grounding.verdicts)
    if isinstance(source, Entity | Literal):
        nodes = evaluation.names.nodes(source)
        return _reached(surroundings, arguments, nodes, told["relation"], _details(joined, told))
    return _members(surroundings, arguments, evaluation, joined, told)


def _execute_logical_form(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    evaluation = FormEvaluation(
        surroundings,
        now=arguments.get("now", FREEBASE.now),
        distinct=Distinct.NONE if arguments.get("return", False) else Distinct.ANSWER,
    )
    expression = with_ids(surroundings.store, read_expression(arguments["expression"]))
    told: dict[str, Any] = {}
    if arguments.get("gate", False):
        gate = RelationGate.of(surroundings, arguments)
        if isinstance(gate, Failure):
            return gate
        grounding = Grounding(evaluation, gate)
        evaluation.check_nodes(expression)
        expression = grounding.expression(expression)
        told["relations"] = grounding.details()
    else:
        evaluation.check(expression)
    if arguments.get("explain", False):
        told["sparql"] = evaluation.queries(expression)
    return _members(surroundings, arguments, evaluation, expression, told)


def _source(evaluation: FormEvaluation, arguments: Mapping[str, Any]) -> Source:
    """The start of the relation: an entity by id or label, a typed literal, or an expression."""
    if "expression" in arguments:
        return with_ids(evaluation.store, read_expression(arguments["expression"]))
    text = arguments["entity"]
    readings = [_literal(text), leaf_of(evaluation.store, text) if text.strip() else None]
    for reading in readings:
        if reading is not None and evaluation.names.nodes(reading):
            return reading
    raise Unanswered(failure(ErrorKind.ENTITY_NOT_IN_KG, f"Entity {quote(text)} not found in KG"))


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _literal(text: str) -> Literal | None:
    """Read a literal with its type or language: `39^^IRI`, `"39"^^<IRI>`, `"Land"@de`."""
    if not text.startswith('"') and "^^" not in text:
        return None
    try:
        return parse_literal(text)
    except LogicalFormError:
        return None


def _reached(
    surroundings: Surroundings,
    arguments: Mapping[str, Any],
    nodes: Sequence[str],
    relation: Mapping[str, Any],
    details: Mapping[str, Any],
) -> Success[Item]:
    """What a relation leads to from nodes, by a look-up that is fast for any degree."""
    limit, offset = paging(surroundings, arguments)
    store = surroundings.store
    look_up = store.tail_entities if relation["direction"] == OUT else store.head_entities
    page = look_up(nodes, [relation["id"]], limit=limit, offset=offset)
    # As in the expression's query, a node is not its own answer.
    items = tuple(item for item in page.items if item.id not in nodes)
    total = page.total - (len(page.items) - len(items))
    return _success(store, items, total, offset + len(page.items) < page.total, details)


def _members(
    surroundings: Surroundings,
    arguments: Mapping[str, Any],
    evaluation: FormEvaluation,
    expression: Expression,
    told: Mapping[str, Any],
) -> Success[Item]:
    """The members of an expression; all names must be in the graph."""
    limit, offset = paging(surroundings, arguments)
    members = evaluation.members(expression)
    page = members.items[offset : offset + limit]
    total = len(members.items)
    if members.truncated:
        # If even counting takes too long, the number found so far is reported.
        with suppress(QueryError):
            total = max(total, evaluation.count(expression))
    truncated = members.truncated or offset + len(page) < total
    return _success(surroundings.store, page, total, truncated, _details(expression, told))


def _details(expression: Expression, told: Mapping[str, Any]) -> dict[str, Any]:
    return {"expression": print_s_expression(expression), **told}


def _success(
    store: GraphStore, items: tuple[Item, ...], total: int, truncated: bool, details: Mapping[str, Any]
) -> Success[Item]:
    hint = compound_values(store, items)
    return Success(
        items, total, truncated=truncated, details=details if hint is None else {**details, "cvt": hint}
    )


def _answered(run: Run) -> Run:
    """Wrap an action so that exceptions raised in recursions become failures."""

    def answer(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
        try:
            return run(surroundings, arguments)
        except Unanswered as unanswered:
            return unanswered.failure
        except LogicalFormError as error:
            return form_failure(error)

    return answer


def _cites(
    arguments: Mapping[str, Any], items: Sequence[str], details: Mapping[str, Any]
) -> list[tuple[Triple, ...]]:
    if "entity" not in arguments or "relation" not in details:
        return [() for _ in items]  # items of an expression are supported by a query
    relation = details["relation"]
    return one_fact_each(arguments["entity"], relation["id"], items, forwards=relation["direction"] == OUT)


_ERRORS = (
    ErrorKind.QUERY_SYNTAX,
    ErrorKind.QUERY_REFUSED,
    ErrorKind.ENTITY_NOT_IN_KG,
    ErrorKind.INVALID_RELATION,
    ErrorKind.RELATION_REJECTED,
    ErrorKind.NO_RELATIONS_FOUND,
    ErrorKind.NO_ENTITIES_FOUND,
)

ACTIONS.register(
    ActionSpec(
        FIND_RELATION,
        "Find the relation of an entity, or of the results of a logical form, that is closest in meaning "
        "to a phrase such as 'place of birth', and follow it. When nothing is close enough, the relations "
        "that are there are returned with their scores: choose one of them.",
        _answered(_find_relation),
        {"relation": Argument(TEXT, "a phrase for the relation, or its id or label")},
        {"entity": ENTITY, "expression": EXPRESSION, **GATE_ARGUMENTS},
        item=DatedItem,
        answers="Either `entity` or `expression` is required. Only items of dated facts have `times`. "
        "Details: `expression` to go on with; `relation`, the one that was followed, with its `score` and "
        "`direction`; `tier`, how sure that is, and of the medium one `candidates`; `also`, a relation of "
        "the other direction that is just as good; `cvt` where entities have no names: how many, of which "
        "types, and with which relations to go on. A rejection has `candidates`.",
        errors=_ERRORS,
        cites=_cites,
    )
)
ACTIONS.register(
    ActionSpec(
        EXECUTE_LOGICAL_FORM,
        "Execute an S-expression such as (AND people.person (JOIN people.person.parents m.02mjmr)), and "
        "list the entities or values that it denotes.",
        _answered(_execute_logical_form),
        {"expression": EXPRESSION},
        {
            "gate": Argument(FLAG, "whether relations are phrases for the relations that are meant"),
            "now": Argument(_DAY, "the day that NOW means"),
            "return": Argument(
                FLAG,
                "whether members may be entities that the expression names, which are left out otherwise",
            ),
            "explain": Argument(FLAG, "whether details hold the SPARQL that says the same"),
            **GATE_ARGUMENTS,
        },
        answers="Details: `expression` as it was executed; with `gate` `relations`, the verdict on each in "
        "the order of evaluation; with `explain` `sparql`, the queries that say the same; `cvt` as of "
        "`find_relation`.",
        errors=_ERRORS,
    )
)
