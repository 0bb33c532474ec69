import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    XSD,
    And,
    Ask,
    Class,
    Comparator,
    Comparison,
    Count,
    Entity,
    Extreme,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.s_expression import (
    MAX_CHARS,
    parse_literal,
    parse_s_expression,
    print_literal,
    print_s_expression,
)
from tests.unit.logical_forms.forms import expressions, literals, patiently


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (
            "(AND film.film (JOIN (R film.actor.film) m.0abc))",
            And(Class("film.film"), Join(Relation("film.actor.film", inverse=True), Entity("m.0abc"))),
        ),
        (
            "(ARGMAX medicine.trial (JOIN (R a.b) c.d))",
            Superlative(
                Extreme.MAX, Class("medicine.trial"), (Relation("a.b", inverse=True), Relation("c.d"))
            ),
        ),
        (
            "(le a.mass 2.3e+06^^http://www.w3.org/2001/XMLSchema#float)",
            Comparison(Comparator.LE, (Relation("a.mass"),), Literal("2.3e+06", XSD + "float")),
        ),
        (
            "(COUNT (JOIN tv.from 1966-01-12^^http://www.w3.org/2001/XMLSchema#date))",
            Count(Join(Relation("tv.from"), Literal("1966-01-12", XSD + "date"))),
        ),
        (
            "(TC (JOIN a.team m.1) a.roster.from NOW)",
            Timed(Join(Relation("a.team"), Entity("m.1")), Relation("a.roster.from"), "NOW"),
        ),
        ('(JOIN loc.type "Country"@en)', Join(Relation("loc.type"), Literal("Country", language="en"))),
        ("(JOIN starred_actors `Tom Hanks`)", Join(Relation("starred_actors"), Entity("Tom Hanks"))),
        ("(JOIN r 1999)", Join(Relation("r"), Entity("1999"))),
        ("film.film", Class("film.film")),
        ("(ASK (JOIN r m.1) m.2)", Ask(Join(Relation("r"), Entity("m.1")), Entity("m.2"))),
        (
            "(ASK (JOIN (R year) m.1) 1966^^http://www.w3.org/2001/XMLSchema#gYear)",
            Ask(Join(Relation("year", inverse=True), Entity("m.1")), Literal("1966", XSD + "gYear")),
        ),
    ],
)
def test_forms_are_read_and_written(text, expression):
    assert parse_s_expression(text) == expression
    assert print_s_expression(expression) == text


@pytest.mark.parametrize(
    ("written", "datatype"),
    [
        ("39", "integer"),
        ("-1.078", "float"),
        ("2.3e+06", "float"),
        ("1e6", "float"),
        ("2009-03-29", "date"),
        ("2009-03-29-08:00", "date"),
        ("2009-03-29T10:00:00", "dateTime"),
        ("2009-03", "gYearMonth"),
        ("blue", "string"),
    ],
)
def test_a_bare_value_is_typed_by_its_look(written, datatype):
    assert parse_literal(written) == Literal(written, XSD + datatype)


@pytest.mark.parametrize(
    "written",
    [
        "39^^http://www.w3.org/2001/XMLSchema#integer",
        "39^^xsd:integer",
        '"39"^^xsd:integer',
        '"39"^^<http://www.w3.org/2001/XMLSchema#integer>',
    ],
)
def test_a_datatype_may_be_written_in_any_usual_way(written):
    assert parse_literal(written) == Literal("39", XSD + "integer")


@pytest.mark.parametrize(
    ("written", "time"),
    [
        ("NOW", "NOW"),
        ("now", "NOW"),
        ("2009", "2009"),
        ("2009^^http://www.w3.org/2001/XMLSchema#gYear", "2009"),
        ("2009-05-01-08:00^^xsd:date", "2009-05-01"),
        ('"2009-05-01T10:00:00"', "2009-05-01"),
    ],
)
def test_times_are_cut_to_the_day(written, time):
    assert parse_s_expression(f"(TC (JOIN r m.1) a.from {written})").time == time


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 1, "ends too early"),
        ("(JOIN r m.1", 12, "ends too early"),
        ("(JOIN r m.1))", 13, "has ended before this"),
        ("(JION r m.1)", 2, "no operator JION; there are JOIN, AND"),
        ("(JOIN (JOIN r s) m.1)", 7, "JOIN takes one relation"),
        ("(JOIN r (AND a b) c)", 19, "expected \\), found c"),
        ("(AND a 39^^xsd:integer)", 8, "found a literal"),
        ("(le r m s)", 9, "expected \\), found s"),
        ("(TC (JOIN r m.1) a.from soon)", 1, '"soon" is not a time'),
        ("(JOIN r (ARGMAX (JOIN r ``) v))", 25, "expected an entity or a literal, found `"),
        ('(JOIN r "open)', 9, 'expected an entity or a literal, found "'),
        ("(ASK (JOIN r e))", 16, "expected an entity or a literal, found \\)"),
    ],
)
def test_an_error_says_where_and_why(text, position, message):
    with pytest.raises(LogicalFormError, match=message) as error:
        parse_s_expression(text)
    assert error.value.position == position


@pytest.mark.parametrize("depth", [200, MAX_CHARS // 8, MAX_CHARS])
def test_nesting_is_bounded(depth):
    with pytest.raises(LogicalFormError):
        parse_s_expression("(JOIN r " * depth + "m.1" + ")" * depth)


@given(expressions)
@patiently
def test_every_expression_reads_back_as_itself(expression):
    text = print_s_expression(expression)
    assert "\n" not in text
    if len(text) <= MAX_CHARS:
        assert parse_s_expression(text) == expression


@given(literals)
@patiently
def test_every_literal_reads_back_as_itself(literal):
    assert parse_literal(print_literal(literal)) == literal


FRAGMENTS = [
    "(",
    ")",
    "JOIN",
    "AND",
    "R",
    "ARGMAX",
    "TC",
    "le",
    " ",
    "`",
    '"',
    "\\",
    "^^",
    "m.1",
    "a.from",
    "NOW",
    "@en",
]


@given(
    st.text()
    | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(" ".join)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)
)
@patiently
def test_no_text_crashes_the_parser(text):
    try:
        expression = parse_s_expression(text)
    except LogicalFormError:
        return
    assert parse_s_expression(print_s_expression(expression)) == expression
