"""How a logical form is built from smaller ones, one operation after the other."""

from __future__ import annotations

from kbqa.logical_forms.algebra import (
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Superlative,
    Timed,
    canonical,
    conjuncts,
)


def leads_to(form: Expression, target: Expression) -> bool:
    """Whether `target` can be built from `form` by operations of `expand`.

    Each operation adds to the whole form so far: `(JOIN starring e)` leads to
    `(AND (JOIN starring e) (JOIN genre f))`, since the second part can be added as a constraint; a comparison
    leads to nothing, since it selects from a set that is there before.
    """
    form, target = canonical(form), canonical(target)
    if form == target:
        return True
    match target:
        case And():
            parts, wanted = frozenset(conjuncts(form)), frozenset(conjuncts(target))
            if parts < wanted:
                return not all(isinstance(part, Comparison) for part in parts)
            return any(leads_to(form, one) for one in wanted if not isinstance(one, Comparison | Class))
        case Join(_, source):
            return not isinstance(source, Entity | Literal) and leads_to(form, source)
        case Superlative() | Timed() | Count() | Ask():
            return leads_to(form, target.source)
        case _:
            return False
