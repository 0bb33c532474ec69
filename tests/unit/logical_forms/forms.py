"""Random expressions, for properties that all of them have."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kbqa.logical_forms.algebra import (
    XSD,
    And,
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

# A busy machine is no failure.
patiently = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

AWKWARD = [
    "Tom Hanks",
    "a|b",
    "x ] y",
    'quoted "q"',
    "back`tick",
    "a\\b",
    "two\nlines",
    "expression1",
    "a^^b",
    "(R r)",
]
names = st.sampled_from(["m.0abc", "film.film", "a.b.from", *AWKWARD]) | st.text(min_size=1).filter(
    lambda text: bool(text.strip())
)
relations = st.builds(Relation, names, st.booleans())
paths = st.lists(relations, min_size=1, max_size=3).map(tuple)
literals = st.builds(
    Literal, st.text(), st.sampled_from([XSD + name for name in ("string", "float", "date")])
) | st.builds(Literal, st.text(), language=st.sampled_from(["en", "pt-BR"]))
times = st.sampled_from(["NOW", "2009", "2009-05", "2009-05-01"])
classes = st.builds(Class, names)
joins = st.builds(Join, relations, st.builds(Entity, names) | literals)
comparisons = st.builds(Comparison, st.sampled_from(Comparator), paths, literals)


def _larger(smaller):
    members = smaller.filter(lambda expression: not isinstance(expression, Class))
    timing = st.sampled_from(["a.b.from", "a.b.end_date"]).map(Relation)
    return st.one_of(
        st.builds(Join, relations, members),
        st.builds(And, smaller, smaller),
        st.builds(Superlative, st.sampled_from(Extreme), smaller, paths),
        st.builds(Timed, smaller, timing, times),
        st.builds(Count, smaller),
    )


expressions = st.recursive(classes | joins | comparisons, _larger, max_leaves=6)
