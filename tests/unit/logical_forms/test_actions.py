import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.actions import (
    Compare,
    CountMembers,
    FindRelation,
    Merge,
    Order,
    Reference,
    TimeConstraint,
    apply,
    build,
    parse_action,
    print_action,
    to_actions,
)
from kbqa.logical_forms.algebra import (
    XSD,
    Class,
    Comparator,
    Entity,
    Extreme,
    Join,
    Literal,
    Relation,
    equivalent,
)
from kbqa.logical_forms.s_expression import MAX_CHARS, parse_s_expression
from tests.unit.logical_forms.forms import (
    AWKWARD,
    classes,
    expressions,
    literals,
    names,
    paths,
    patiently,
    relations,
    times,
)

references = st.integers(1, 99).map(Reference)
actions = st.one_of(
    st.builds(FindRelation, st.builds(Entity, names) | literals | references, relations),
    st.builds(Merge, references | classes, references | classes),
    st.builds(Order, st.sampled_from(Extreme), references | classes, paths),
    st.builds(Compare, st.sampled_from(Comparator), paths, literals),
    st.builds(TimeConstraint, st.just(Relation("a.from")), times),
    st.builds(CountMembers, references),
)


def test_a_form_becomes_the_actions_that_a_reader_would_take():
    expression = parse_s_expression(
        "(ARGMAX (AND film.film (AND (JOIN (R film.actor.film) m.1) (JOIN film.film.director m.2)))"
        " film.film.budget)"
    )
    sequence = to_actions(expression)
    assert [print_action(action) for action in sequence] == [
        "Find_relation [ m.1 | (R film.actor.film) ]",
        "Find_relation [ m.2 | film.film.director ]",
        "Merge [ expression1 | expression2 ]",
        "Merge [ film.film | expression3 ]",
        "Order [ MAX | expression4 | film.film.budget ]",
    ]
    assert build(sequence) == expression


def test_comparison_and_count():
    expression = parse_s_expression("(COUNT (AND a.meteorite (le a.mass 0.001)))")
    assert [print_action(action) for action in to_actions(expression)] == [
        f"Compare [ le | a.mass | 0.001^^{XSD}float ]",
        "Merge [ a.meteorite | expression1 ]",
        "Count [ expression2 ]",
    ]


def test_a_time_constraint_follows_what_it_constrains():
    expression = parse_s_expression("(AND (TC (JOIN a.player m.1) a.roster.from NOW) (JOIN a.team m.2))")
    assert [print_action(action) for action in to_actions(expression)] == [
        "Find_relation [ m.1 | a.player ]",
        "Time_constraint [ a.roster.from | NOW ]",
        "Find_relation [ m.2 | a.team ]",
        "Merge [ expression2 | expression3 ]",
    ]
    assert build(to_actions(expression)) == expression


@pytest.mark.parametrize("text", ["film.film", "(COUNT film.film)", "(TC film.film a.from NOW)"])
def test_bare_classes_have_no_actions(text):
    with pytest.raises(LogicalFormError, match=r"bare class"):
        to_actions(parse_s_expression(text))


def test_no_action_says_whether_a_node_is_a_member():
    with pytest.raises(LogicalFormError, match="no action"):
        to_actions(parse_s_expression("(ASK (JOIN r m.1) m.2)"))


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (
            "Find_relation [m.02mjmr | people.person.place_of_birth]",
            FindRelation(Entity("m.02mjmr"), Relation("people.person.place_of_birth")),
        ),
        (
            "Action2: find_relation [ Expression1 | (R starred actors) ]",
            FindRelation(Reference(1), Relation("starred actors", inverse=True)),
        ),
        (
            "Find_relation [ Tom Hanks | starred actors ]",
            FindRelation(Entity("Tom Hanks"), Relation("starred actors")),
        ),
        (
            f"Find_relation [62.0^^{XSD}float | a.focal_height]",
            FindRelation(Literal("62.0", XSD + "float"), Relation("a.focal_height")),
        ),
        ("MERGE [ expression12 | film.film ]", Merge(Reference(12), Class("film.film"))),
        (
            "Order [ ARGMIN | film.film | (JOIN (R a.b) c.d) ]",
            Order(Extreme.MIN, Class("film.film"), (Relation("a.b", inverse=True), Relation("c.d"))),
        ),
        (
            "Compare [ LE | a.b | 39 ]",
            Compare(Comparator.LE, (Relation("a.b"),), Literal("39", XSD + "integer")),
        ),
        ("Time_constraint [ a.b.from | 2009^^xsd:gYear ]", TimeConstraint(Relation("a.b.from"), "2009")),
        ("  Count[expression3]  and then", CountMembers(Reference(3))),
    ],
)
def test_lines_are_read(line, action):
    assert parse_action(line) == action


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"written Name \[ argument"),
        ("Find_relation m.1 r", r"written Name \["),
        ("Find_relations [ m.1 | r ]", "no action Find_relations; there are Find_relation, Merge"),
        ("Find_relation [ m.1 ]", r"write Find_relation \[ entity \| relation \]"),
        ("Find_relation [ m.1 | ]", r"write Find_relation"),
        ("Find_relation [ m.1 | r", r"write Find_relation"),
        ("Find_relation [ m.1 | (JOIN r s) ]", "one relation at a time"),
        ("Order [ TOP | expression1 | r ]", "MAX or MIN, not TOP"),
        ("Compare [ eq | r | 39 ]", "le, lt, ge or gt, not eq"),
        ("Time_constraint [ a.from | soon ]", '"soon" is not a time'),
        ("Count [ film.film ]", "film.film is not an expression"),
    ],
)
def test_a_line_that_is_no_action_says_what_to_write(line, message):
    with pytest.raises(LogicalFormError, match=message):
        parse_action(line)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Merge(Reference(1), Reference(3)), "no expression3: the latest is expression2"),
        (CountMembers(Reference(0)), "no expression0"),
    ],
)
def test_a_reference_to_nothing_is_an_error(action, message):
    have = [Join(Relation("r"), Entity(name)) for name in "ab"]
    with pytest.raises(LogicalFormError, match=message):
        apply(action, have)


def test_a_time_constraint_needs_an_expression():
    with pytest.raises(LogicalFormError, match="no expression1: there is none yet"):
        build([TimeConstraint(Relation("a.from"), "NOW")])
    with pytest.raises(LogicalFormError, match="there is no action"):
        build([])


def test_merging_an_expression_with_itself_for_ever_ends_in_an_error():
    doubling = [Merge(Reference(number), Reference(number)) for number in range(1, 100)]
    with pytest.raises(LogicalFormError, match="more than"):
        build([FindRelation(Entity("m.1"), Relation("r")), *doubling])


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_survive_a_line(name):
    for action in (
        FindRelation(Entity(name), Relation(name)),
        Merge(Class(name), Reference(1)),
        Order(Extreme.MAX, Class(name), (Relation(name, inverse=True), Relation(name))),
    ):
        assert parse_action(print_action(action)) == action
        assert "\n" not in print_action(action)


@given(actions)
@patiently
def test_every_action_reads_back_as_itself(action):
    line = print_action(action)
    if len(line) <= MAX_CHARS:
        assert parse_action(line) == action


@given(expressions)
@patiently
def test_actions_rebuild_an_equivalent_expression(expression):
    try:
        sequence = to_actions(expression)
    except LogicalFormError:
        reject()  # a bare class somewhere
    assert equivalent(build(sequence), expression)


FRAGMENTS = [
    "Find_relation",
    "Merge",
    "Order",
    "[",
    "]",
    "|",
    "`",
    '"',
    "\\",
    "(R ",
    ")",
    "expression1",
    "MAX",
    "^^",
    " ",
]


@given(
    st.text()
    | st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join)
    | st.text().map(lambda text: f"Find_relation [ {text} | r ]")
)
@patiently
def test_no_line_crashes_the_parser(line):
    try:
        action = parse_action(line)
    except LogicalFormError:
        return
    assert parse_action(print_action(action)) == action
