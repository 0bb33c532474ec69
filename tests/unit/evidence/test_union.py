from hypothesis import given
from hypothesis import strategies as st

from kbqa.answers import answer_set, f1, hits1_first
from kbqa.evidence.union import UnitedAnswer, unite
from kbqa.trajectory import Status, Trajectory


def run(*answers, ids=None, status=Status.ANSWERED):
    return Trajectory((), (), status, answers, ids or tuple(() for _ in answers))


def test_the_union_counts_the_runs_behind_each_answer():
    united = unite([run("Heat"), run("Serpico", "heat."), run("Ali")])
    assert [(answer.text, answer.runs, answer.support) for answer in united] == [
        ("Heat", (0, 1), "2/3"),  # most runs gave it
        ("Serpico", (1,), "1/3"),
        ("Ali", (2,), "1/3"),
    ]
    assert united[0].share == 2 / 3


def test_runs_without_an_answer_count_among_the_runs():
    (answer,) = unite([run("Heat"), run(status=Status.OUT_OF_TURNS), run(status=Status.TIMED_OUT)])
    assert answer == UnitedAnswer("Heat", (), (0,), 3)


def test_an_answer_stands_for_what_any_run_meant_by_it():
    united = unite([run("Ann", ids=(("m.1",),)), run("ann", ids=(("m.2", "m.1"),))])
    assert united == [UnitedAnswer("Ann", ("m.1", "m.2"), (0, 1), 2)]


def test_a_run_that_repeats_itself_is_one_run():
    (answer,) = unite([run("Heat", "HEAT"), run()])
    assert answer.support == "1/2"


def test_no_runs_and_no_answers_unite_to_nothing():
    assert unite([]) == unite([run(), run(" . ")]) == []


def test_measures_of_the_union():
    """KG-R1's N runs: each finds one of two answers, and one a wrong one as well."""
    texts = [answer.text for answer in unite([run("Heat"), run("Heat", "Jaws"), run("Serpico")])]
    assert f1(texts, ["Heat", "Serpico"]) == 2 * (2 / 3) / (2 / 3 + 1)
    assert hits1_first(texts, ["Heat", "Serpico"])


@given(st.lists(st.lists(st.text("ab .", max_size=3), max_size=4), max_size=4))
def test_the_union_is_that_of_the_answer_sets(texts):
    united = unite([run(*answers) for answers in texts])
    assert answer_set(answer.text for answer in united) == answer_set(t for row in texts for t in row)
    assert len(united) == len(answer_set(answer.text for answer in united))
    assert all(
        answer.runs == tuple(n for n, row in enumerate(texts) if answer_set([answer.text]) <= answer_set(row))
        for answer in united
    )
    assert [len(answer.runs) for answer in united] == sorted((len(a.runs) for a in united), reverse=True)
