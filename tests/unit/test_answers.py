import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.answers import answer_set, em_set, f1, f_beta, hit_any, hits1_first, normalise, resolve, rhits1


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [(["A1"], 5 / 6), (["A1", "A2", "A3", "A4"], 5 / 9)],
)
def test_f_beta_gives_knowcoder_a1s_worked_values(predicted, expected):
    assert f_beta(predicted, ["A1", "A2"], beta=0.5) == pytest.approx(expected)


def test_f1_is_the_harmonic_mean_of_precision_and_recall():
    # precision 1/3, recall 1/2 -> 2/5
    assert f1(["a", "x", "y"], ["a", "b"]) == pytest.approx(0.4)


def test_an_answer_given_twice_counts_once():
    assert f1(["a", "A", " a. "], ["a"]) == 1.0


@pytest.mark.parametrize(("predicted", "gold"), [([], ["a"]), (["a"], []), ([], [])])
def test_f1_without_predictions_or_gold_is_zero(predicted, gold):
    assert f1(predicted, gold) == 0.0


def test_the_four_exact_matches_differ():
    predicted, gold = ["x", "a"], ["a", "b"]
    assert not em_set(predicted, gold)
    assert hit_any(predicted, gold)
    assert not hits1_first(predicted, gold)
    assert rhits1(predicted, gold) == 0.5
    assert em_set(["B", "A"], gold)


def test_normalise_folds_case_unicode_form_and_wrapping():
    assert normalise("  ＴＨＥ \u00a0Beatles\u201d'.") == normalise("the beatles\u201d")
    assert normalise('"Café".') == normalise("cafe\u0301")


def test_a_number_has_no_plus_sign():
    """QALD-10 gives the quantities of Wikidata's dumps, +100, and engines return 100."""
    assert em_set(["100", "-2.5"], ["+100", "-2.5"])
    assert [normalise(text) for text in ("++1", "a+1", "+", "C+")] == ["++1", "a+1", "+", "c+"]


@given(st.text())
def test_normalise_is_idempotent(text):
    assert normalise(normalise(text)) == normalise(text)


@given(st.lists(st.text(max_size=5)), st.lists(st.text(max_size=5)))
def test_f1_is_one_exactly_when_the_sets_agree(predicted, gold):
    agree = answer_set(predicted) == answer_set(gold) != frozenset()
    assert (f1(predicted, gold) == 1.0) == agree


def test_an_answer_is_named_as_the_gold_answers_are() -> None:
    # A label of two entities means both; one that is gold as text stays it; one of no entity stays as it is.
    assert resolve(["Ada", "Bob"], [("m.1", "m.2"), ("m.3",)], ["m.2"]) == ["m.1", "m.2", "Bob"]
    assert resolve(["Ada"], [("m.1",)], ["ada"]) == ["Ada"]
    assert resolve(["m.1"], [()], ["m.1"]) == ["m.1"]
    assert resolve(["Ada"], [], ["m.1"]) == ["Ada"]
    assert f1(resolve(["Ada"], [("m.1", "m.2")], ["m.2"]), ["m.2"]) == pytest.approx(2 / 3)
