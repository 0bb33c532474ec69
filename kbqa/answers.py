"""Compares answers: normalisation, the exact-match family, F1 and F-beta.

Predictions and gold answers are sets of strings; an answer that occurs twice
counts once. All other code uses these measures.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from kbqa.kg.namespaces import canonical_id

_SPACE = re.compile(r"\s+")
# As Wikidata's dumps write quantities; engines return them without the sign.
_SIGNED = re.compile(r"^\+(?=\d+(?:\.\d+)?$)")
_WRAPPING = " \t\r\n\"'`.,;:"


def normalise(answer: str) -> str:
    """Fold case, Unicode form and spacing, and strip what wraps an answer; an id in its short form.

    A number has no plus sign.

    >>> normalise('  "The Beatles". '), normalise("wd:Q38"), normalise("+100")
    ('the beatles', 'q38', '100')
    """
    folded = unicodedata.normalize("NFKC", canonical_id(answer.strip())).casefold()
    return _SIGNED.sub("", _SPACE.sub(" ", folded).strip(_WRAPPING))


def answer_set(answers: Iterable[str]) -> frozenset[str]:
    """The set of normalised answers, without empty ones."""
    return frozenset(filter(None, map(normalise, answers)))


def resolve(
    answers: Sequence[str],
    ids: Sequence[Sequence[str]],
    gold: Iterable[str],
    names: Iterable[Sequence[str]] = (),
) -> list[str]:
    """Convert answers to the form of the gold answers: texts or ids.

    A label that several entities share stands for all of them. If an answer's text is not a gold answer, but
    one of its entities is, the answer is replaced by all its entities. Otherwise its text is kept. A name of
    a gold answer becomes that gold answer.

    Args:
        ids: for each answer, ids of the entities for which it stands; missing entries mean none.
        names: gold answers with their other names: (answer, name, …).
    """
    wanted = answer_set(gold)
    called: defaultdict[str, list[str]] = defaultdict(list)
    for answer, *others in names:
        if normalise(answer) in wanted:
            for name in others:
                called[normalise(name)].append(answer)
    known = wanted | called.keys()
    named: list[str] = []
    for text, entities in zip_longest(answers, ids, fillvalue=()):
        by_id = normalise(str(text)) not in wanted and not known.isdisjoint(answer_set(entities))
        for name in entities if by_id else (str(text),):
            form = normalise(name)
            named += [name] if form in wanted else called.get(form, [name])
    return named


def precision_recall(predicted: Iterable[str], gold: Iterable[str]) -> tuple[float, float]:
    """Share of predictions that are gold, and of gold answers that are predicted; 0 if undefined."""
    predictions, targets = answer_set(predicted), answer_set(gold)
    hits = len(predictions & targets)
    return (
        hits / len(predictions) if predictions else 0.0,
        hits / len(targets) if targets else 0.0,
    )


def f_beta(predicted: Iterable[str], gold: Iterable[str], beta: float) -> float:
    """F_beta = (1 + beta^2) P R / (beta^2 P + R); beta below 1 favours precision."""
    precision, recall = precision_recall(tuple(predicted), tuple(gold))
    if precision == 0.0 or recall == 0.0:
        return 0.0
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def f1(predicted: Iterable[str], gold: Iterable[str]) -> float:
    """Harmonic mean of precision and recall over answer sets."""
    return f_beta(predicted, gold, 1.0)


def em_set(predicted: Iterable[str], gold: Iterable[str]) -> bool:
    """Set equality (KBQA-R1's exact match)."""
    return answer_set(predicted) == answer_set(gold)


def hit_any(predicted: Iterable[str], gold: Iterable[str]) -> bool:
    """At least one predicted answer is gold (KnowCoder-A1's EM, ISP-KGR's Hit)."""
    return bool(answer_set(predicted) & answer_set(gold))


def hits1_first(predicted: Sequence[str], gold: Iterable[str]) -> bool:
    """The first predicted answer is gold."""
    return bool(predicted) and normalise(predicted[0]) in answer_set(gold)


def rhits1(predicted: Iterable[str], gold: Iterable[str]) -> float:
    """Probability that a predicted answer drawn at random is gold, which equals the precision."""
    return precision_recall(predicted, gold)[0]
