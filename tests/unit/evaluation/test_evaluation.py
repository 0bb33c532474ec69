"""Questions summed up: the whole, its parts, and examples of every kind."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbqa.errors import ConfigurationError, DatasetError, JudgeUnavailableError
from kbqa.evaluation import compare, evaluate, read_earlier
from kbqa.evaluation.evaluation import Gallery
from kbqa.judges import MatchingJudge
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import Hop
from tests.unit.episodes import question
from tests.unit.evaluation.cases import EMPTY, FAILED, FOUND, episode

RIGHT, WRONG = episode("Byron", queries=[FOUND]), episode("Eve", queries=[EMPTY])


def asked(number, hops=1, **fields):
    return replace(question("Byron"), id=f"q{number}", path=(Hop("parent"),) * hops, **fields)


def evaluated(*runs, judge=None, **options):
    return evaluate(
        [(asked(number, hops=number % 2 + 1), [run]) for number, run in enumerate(runs)],
        judge or MatchingJudge(),
        **options,
    )


def test_the_json_has_metrics_and_what_is_behind_them():
    result = evaluated(RIGHT, RIGHT, RIGHT, WRONG, about={"policy": "p"}).to_json()
    assert json.loads(json.dumps(result)) == result
    assert (result["questions"], result["policy"], result["unjudged"], result["runs"]) == (4, "p", 0, [])
    assert result["metrics"]["hits@1"] == result["metrics"]["f1"] == 0.75
    assert result["metrics"]["executability"] == 1.0  # an empty result was executed
    low, high = result["intervals"]["f1"]
    assert 0 <= low < 0.75 < high <= 1
    assert result["breakdowns"]["hops"]["1"]["metrics"]["f1"] == 1.0
    assert result["breakdowns"]["hops"]["2"]["metrics"]["f1"] == 0.5
    assert (result["breakdowns"]["operation"], result["breakdowns"]["level"]) == ({}, {})
    assert result["classes"]["outcome"] == {"direct_hit": 3, "recovered": 0, "incorrect": 1}
    assert result["classes"]["failure"] == {"execution_failure": 0, "refused": 0, "incorrect_logic": 1}
    assert result["classes"]["error"] == {"hallucination": 1, "relation": 0, "constraint": 0}
    last = result["records"][-1]
    assert (last["id"], last["gold"], last["answers"], last["hops"]) == ("q3", ["Byron"], ["Eve"], "2")
    assert last["measures"]["f1"] == 0


def test_a_part_that_is_not_known_of_all_is_one_of_its_own():
    cases = [(asked(0, operation="count"), [RIGHT]), (asked(1), [WRONG])]
    parts = evaluate(cases, MatchingJudge()).to_json()["breakdowns"]["operation"]
    assert {part: found["metrics"]["f1"] for part, found in parts.items()} == {"count": 1, "unknown": 0}


def test_executability_is_over_all_queries_not_over_questions():
    result = evaluated(episode(queries=[FAILED, FAILED, FAILED]), RIGHT).to_json()
    assert result["metrics"]["executability"] == 1 / 4
    assert "executability" not in evaluated(episode("Byron")).to_json()["metrics"]


def reworded(*runs, times):
    """Each question asked several times, of the same topic and path."""
    cases = []
    for number, run in enumerate(runs):
        one = replace(asked(number), topic_entities=(f"e{number}",))
        cases += [(replace(one, id=f"q{number}-{again}"), [run]) for again in range(times)]
    return evaluate(cases, MatchingJudge())


def test_intervals_are_over_what_is_asked_not_over_its_wordings():
    once, thrice = (reworded(*[RIGHT, RIGHT, WRONG] * 10, times=times).to_json() for times in (1, 3))
    assert (once["questions"], once["groups"]) == (30, 30)
    assert (thrice["questions"], thrice["groups"]) == (90, 30)
    assert thrice["intervals"]["f1"] == pytest.approx(once["intervals"]["f1"])
    assert thrice["breakdowns"]["hops"]["1"]["groups"] == 30
    assert thrice["records"][0]["group"] == thrice["records"][1]["group"] == "e0 : parent"


def test_a_question_without_a_gold_path_is_a_group_of_its_own():
    cases = [(replace(asked(number), path=()), [RIGHT]) for number in range(4)]
    result = evaluate([*cases, (asked(4), [RIGHT]), (asked(5), [RIGHT])], MatchingJudge()).to_json()
    assert (result["questions"], result["groups"]) == (6, 5)


def test_groups_are_told_apart_by_direction_and_topic_not_by_the_topics_order():
    along, against = asked(0), replace(asked(1), path=(Hop("parent", inverse=True),))
    both = [replace(asked(n), topic_entities=topics) for n, topics in ((2, ("a", "b")), (3, ("b", "a")))]
    records = evaluate([(one, [RIGHT]) for one in (along, against, *both)], MatchingJudge()).records
    assert [record.group for record in records] == [
        "Ada : parent",
        "Ada : ^parent",
        "a, b : parent",
        "a, b : parent",
    ]


def test_a_difference_is_as_sure_as_its_groups_are_many():
    def against_nothing(times):
        ours = reworded(*[RIGHT, RIGHT, WRONG] * 10, times=times)
        theirs = {record.question.id: {"hits@1": 0.0} for record in ours.records}
        return compare(ours.records, "nothing", theirs)

    once, thrice = against_nothing(1), against_nothing(3)
    assert (thrice.questions, thrice.groups, once.groups) == (90, 30, 30)
    hits = [comparison.differences["hits@1"] for comparison in (once, thrice)]
    assert hits[0].interval == pytest.approx(hits[1].interval)
    assert [one.test.ours for one in hits] == [20, 60]  # McNemar's is by question


def test_runs_are_told_one_by_one():
    cases = [(asked(0), [WRONG, RIGHT]), (asked(1), [RIGHT, RIGHT])]
    result = evaluate(cases, MatchingJudge()).to_json()
    assert [run["metrics"]["hit_any"] for run in result["runs"]] == [0.5, 1.0]
    assert result["metrics"]["hit_any"] == 1.0
    assert result["metrics"]["llm_calls"] == 4
    # What became of it is told of the first run.
    assert result["classes"]["outcome"]["incorrect"] == 1


WORLD = LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples([("Ada", "parent", "Byron")])}))


def test_answers_are_supported_as_far_as_the_graph_confirms_them():
    # FOUND claims both; the graph knows of one.
    half = episode("Byron", "Annabella", queries=[FOUND], ids=[["Byron"], ["Annabella"]])
    sure = episode("Byron", queries=[FOUND], ids=[["Byron"]])
    silent = episode(queries=[FOUND])
    result = evaluated(half, sure, silent, tools=WORLD).to_json()
    assert [record["measures"]["supported"] for record in result["records"]] == [0.5, 1, None]
    assert result["metrics"]["supported"] == 0.75  # over the two questions that were answered
    assert "supported" not in evaluated(half).to_json()["metrics"]


def test_each_run_is_supported_by_what_it_retrieved_itself():
    sure, guess = episode("Byron", queries=[FOUND], ids=[["Byron"]]), episode("Byron")
    result = evaluate([(asked(0), [guess, sure])], MatchingJudge(), tools=WORLD).to_json()
    assert [run["metrics"]["supported"] for run in result["runs"]] == [0, 1]
    assert result["metrics"]["supported"] == 1


class Silent:
    def __init__(self):
        self.asked = 0

    def verdict(self, question, gold, answers, names):
        self.asked += 1
        raise JudgeUnavailableError("nobody there")


def test_no_verdict_is_not_incorrect_and_a_silent_judge_is_left_alone():
    judge = Silent()
    result = evaluated(*[RIGHT] * 100, judge=judge).to_json()
    assert "accuracy" not in result["metrics"]
    assert (result["unjudged"], result["records"][0]["measures"]["accuracy"]) == (100, None)
    assert judge.asked < 40  # those under way when it was given up
    assert result["classes"]["failure"]["incorrect_logic"] == 0


def test_nothing_to_evaluate_on_is_an_error():
    with pytest.raises(DatasetError, match="no question"):
        evaluate([], MatchingJudge())


def test_examples_are_of_every_kind_and_no_more_than_wanted():
    evaluation = evaluated(*[RIGHT] * 200, WRONG, *[RIGHT] * 200, episode("Eve"), examples=12)
    assert len(evaluation.records) == 402
    assert len(evaluation.examples) == 10
    kinds = [example.record.failure for example in evaluation.examples]
    assert {"refused", "incorrect_logic"} <= set(kinds)
    assert all(example.runs for example in evaluation.examples)
    right = {e.record.question.id for e in evaluation.examples if e.record.failure is None}
    assert len(right) == 8
    assert max(int(id_[1:]) for id_ in right) > 50  # drawn from all, not the first ones


def test_a_gallery_draws_the_same_for_the_same_seed():
    records = evaluated(*[RIGHT] * 60).records

    def drawn(seed):
        gallery = Gallery(9, seed)
        for record in records:
            gallery.offer(record, [RIGHT])
        return [example.record.question.id for example in gallery.chosen()]

    assert drawn(1) == drawn(1) != drawn(2)


def earlier(tmp_path, *runs):
    file = tmp_path / "earlier.json"
    file.write_text(json.dumps(evaluated(*runs, about={"policy": "before"}).to_json()))
    return read_earlier(file)


def test_two_evaluations_are_compared_question_by_question(tmp_path):
    name, measured = earlier(tmp_path, RIGHT, WRONG, WRONG, WRONG)
    comparison = compare(evaluated(RIGHT, RIGHT, RIGHT, WRONG, RIGHT).records, name, measured)
    assert (comparison.name, comparison.questions) == ("before", 4)
    hits = comparison.differences["hits@1"]
    assert (hits.ours, hits.theirs, hits.difference) == (0.75, 0.25, 0.5)
    assert (hits.test.ours, hits.test.theirs, hits.test.p) == (2, 0, 0.5)
    assert hits.interval.low <= 0.5 <= hits.interval.high
    assert comparison.differences["f1"].test is None
    json.dumps(comparison.to_json())


def test_nothing_in_common_cannot_be_compared(tmp_path):
    name, measured = earlier(tmp_path, RIGHT)
    with pytest.raises(ConfigurationError, match="no question in common"):
        compare(evaluate([(asked(9), [RIGHT])], MatchingJudge()).records, name, measured)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"records": [{"id": "q"}]}', '{"records": 3}'])
def test_a_file_that_is_no_evaluation_is_refused(tmp_path, content):
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"x.json was not written by kbqa eval --json"):
        read_earlier(file)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_earlier(tmp_path / "nowhere.json")
