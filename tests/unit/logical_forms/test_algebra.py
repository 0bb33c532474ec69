import pytest

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    MAX_NODES,
    And,
    Class,
    Comparator,
    Count,
    Entity,
    Join,
    Literal,
    Relation,
    Timed,
    canonical,
    entities,
    equivalent,
    relations,
)
from kbqa.logical_forms.s_expression import parse_s_expression, print_s_expression

A, B, C = (Join(Relation("r"), Entity(name)) for name in "abc")


def test_and_is_commutative_associative_and_idempotent():
    assert equivalent(And(A, B), And(B, A))
    assert equivalent(And(A, And(B, C)), And(And(C, A), B))
    assert equivalent(And(A, And(A, A)), A)
    assert not equivalent(And(A, B), And(A, C))


def test_a_class_merged_with_itself_can_still_be_joined():
    expression = parse_s_expression("(JOIN r (AND c (AND c c)))")
    assert equivalent(expression, parse_s_expression("(JOIN r (AND c c))"))


def test_the_canonical_form_reaches_into_operands():
    one = parse_s_expression("(COUNT (TC (JOIN r (ARGMAX (AND a (JOIN s e)) v)) x.from NOW))")
    other = parse_s_expression("(COUNT (TC (JOIN r (ARGMAX (AND (JOIN s e) a) v)) x.from NOW))")
    assert one != other
    assert equivalent(one, other)
    assert canonical(canonical(one)) == canonical(one)


def test_order_matters_where_it_should():
    inside = parse_s_expression("(ARGMAX (AND a (JOIN s e)) v)")
    outside = parse_s_expression("(AND a (ARGMAX (JOIN s e) v))")
    assert not equivalent(inside, outside)


def test_names_are_listed_once_in_order():
    expression = parse_s_expression("(AND (JOIN r m.2) (ARGMIN (JOIN (R s) (JOIN r m.1)) (JOIN t r)))")
    assert entities(expression) == ("m.2", "m.1")
    assert relations(expression) == ("r", "s", "t")


def test_size_is_bounded_whatever_is_shared():
    def doubled(times):
        return And(doubled(times - 1), doubled(times - 1)) if times else A

    assert doubled(4).size <= MAX_NODES
    with pytest.raises(LogicalFormError, match=f"more than {MAX_NODES}"):
        doubled(6)


def test_a_chain_as_long_as_allowed_can_be_walked():
    expression = A
    while expression.size < MAX_NODES:
        expression = Count(expression)
    assert equivalent(expression, expression)
    assert entities(expression) == ("a",)
    assert parse_s_expression(print_s_expression(expression)) == expression
    with pytest.raises(LogicalFormError, match="more than"):
        Count(expression)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Entity(" "), "the entity has no name"),
        (lambda: Relation(""), "the relation has no name"),
        (lambda: Join(Relation("r"), Class("c")), "not a bare class"),
        (lambda: Timed(A, Relation("x.from"), "2009-13"), '"2009-13" is not a time'),
        (lambda: Timed(A, Relation("x.from", inverse=True), "NOW"), "relation of the members"),
        (lambda: Literal("1", "integer"), '"integer" is not a datatype'),
        (lambda: Literal("1", language="e n"), '"e n" is not a language tag'),
    ],
)
def test_what_makes_no_sense_cannot_be_made(make, message):
    with pytest.raises(LogicalFormError, match=message):
        make()


def test_comparators_know_their_symbol():
    assert [comparator.symbol for comparator in Comparator] == ["<=", "<", ">=", ">"]
