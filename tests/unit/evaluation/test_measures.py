"""Every metric with values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbqa.evaluation.measures import METRICS, measure, named_answers
from kbqa.judges import MatchingJudge, Verdict
from kbqa.trajectory import Search, Status, Trajectory
from tests.unit.episodes import question, turn
from tests.unit.evaluation.cases import EMPTY, FAILED, FOUND, episode


def values(asked, *runs, verdict=None):
    return {name: m.value for name, m in measure(asked, runs, verdict).items()}


@pytest.mark.parametrize(
    ("answers", "hits1", "f1", "em", "hit", "rhits1"),
    [
        (["Byron", "Annabella"], 1, 1, 1, 1, 1),
        (["Byron"], 1, 2 / 3, 0, 1, 1),  # precision 1, recall 1/2
        (["Ada", "Byron"], 0, 1 / 2, 0, 1, 1 / 2),
        (["Byron", "Ada", "Eve", "Annabella"], 1, 2 / 3, 0, 1, 1 / 2),  # precision 1/2, recall 1
        (["Eve"], 0, 0, 0, 0, 0),
        ([], 0, 0, 0, 0, 0),
    ],
)
def test_answers_against_two_gold_ones(answers, hits1, f1, em, hit, rhits1):
    found = values(question("Byron", "Annabella"), episode(*answers))
    expected = {"hits@1": hits1, "f1": f1, "em_set": em, "hit_any": hit, "rhits1": rhits1}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_every_metric_is_measured_and_described():
    measured = measure(question(), [episode("Byron")], None)
    assert list(measured) == list(METRICS)
    assert all(metric.title and metric.about for metric in METRICS.values())


def test_what_an_answer_takes():
    found = measure(question(), [episode("Byron", queries=[FAILED, EMPTY, FOUND])], None)
    assert found["turns"].value == found["llm_calls"].value == 4
    assert found["generated_tokens"].value == 16
    assert found["total_tokens"].value == 20
    # Learning-to-Refine: an empty result was executed, a format error was not.
    assert (found["executability"].value, found["executability"].weight) == (2, 3)
    assert found["retrieval"].value == 1


def test_what_was_searched_beside_an_answer_are_calls_of_the_model_too():
    searched = replace(episode("Byron", queries=[FOUND]), search=Search(0.5, 1.0, 3, 100, 2))
    found = measure(question(), [searched], None)
    assert (found["turns"].value, found["llm_calls"].value) == (2, 2 + 3)


def test_tokens_of_messages_are_those_that_the_server_counted():
    chat = Trajectory((), (turn(20, 25), turn(40, 45)), Status.ANSWERED, ("Byron",), ((),))
    found = values(question(), chat)
    assert (found["generated_tokens"], found["total_tokens"]) == (10, 45)
    assert values(question(), Trajectory((), (), Status.TIMED_OUT))["total_tokens"] == 0


def test_without_queries_executability_has_no_weight():
    assert measure(question(), [episode("Byron")], None)["executability"].weight == 0


def test_accuracy_is_the_judges():
    asked = question("Byron", "Annabella")
    verdict = Verdict(correct=True, justification="says so", found=(True, False))
    found = measure(asked, [episode("Lord Byron")], verdict)
    assert found["accuracy"] == (1, 1)
    # KG-R1's vector: one of one answer is right, one of two gold answers is found.
    assert found["judged_f1"].value == pytest.approx(2 / 3)
    assert found["em_set"].value == 0
    assert measure(asked, [episode("Lord Byron")], None)["accuracy"].weight == 0


def test_judged_by_matching_f1_is_f1():
    asked, run = question("Byron", "Annabella"), episode("Ada", "Byron")
    found = values(asked, run, verdict=MatchingJudge().verdict("?", asked.answers, run.answers))
    assert found["judged_f1"] == pytest.approx(found["f1"])


def test_runs_are_united_and_what_they_took_is_added():
    runs = [episode("Eve", queries=[FOUND]), episode("Byron"), episode("Byron", "Annabella")]
    found = values(question("Byron", "Annabella"), *runs)
    # Two runs gave Byron, so it comes first; Eve is wrong: precision 2/3, recall 1.
    assert (found["hits@1"], found["hit_any"], found["em_set"]) == (1, 1, 0)
    assert found["f1"] == pytest.approx(4 / 5)
    assert found["llm_calls"] == 4
    assert found["turns"] == pytest.approx(4 / 3)
    assert found["generated_tokens"] == 16
    assert found["retrieval"] == 1


def test_an_entity_may_be_named_by_label_where_gold_answers_are_ids():
    asked = question("m.01", "m.02")
    run = episode("Springfield", "Shelbyville", ids=[("m.01", "m.09"), ("m.07",)])
    # A label that several entities share means them all.
    assert named_answers(asked, [run]).answers == ["m.01", "m.09", "Shelbyville"]
    assert values(asked, run)["hits@1"] == 1
    assert named_answers(question("Springfield"), [run]).answers == ["Springfield", "Shelbyville"]
