"""`kbqa eval`: figures of a policy on a data set, and one line for what is wrong."""

from __future__ import annotations

import json
import re

import pytest

from kbqa.training.adapters import Adapter, add_adapter
from tests.services.cli.conftest import LINES
from tests.unit.policies_fixtures import make_model, make_tokenizer


def test_a_policy_is_evaluated_without_any_service(in_process, store, data, tmp_path):
    file = tmp_path / "figures.json"
    code, out, err = in_process("eval", "tiny", "metaqa-1hop", "--data", str(data), "--json", str(file))
    assert (code, err) == (0, "")
    newest = store.newest("tiny").id
    assert f"tiny@{newest} on 3 questions of metaqa-1hop (test), graph metaqa" in out
    assert "Hits@1" in out
    result = json.loads(file.read_text())
    assert result["questions"] == 3
    assert {"f1", "hits@1", "hit_any", "rhits1", "em_set", "accuracy", "retrieval"} <= set(result["metrics"])
    assert all(0 <= result["metrics"][name] <= 1 for name in ("f1", "hits@1", "accuracy"))
    assert result["intervals"]["f1"][0] <= result["metrics"]["f1"] <= result["intervals"]["f1"][1]
    assert [record["id"] for record in result["records"]] == [f"1hop_test-{n:05}" for n in (1, 2, 3)]
    assert (result["policy"], result["recipe"], [*result["graphs"]]) == (
        f"tiny@{newest}",
        "kg-r1-small",
        ["metaqa"],
    )
    assert result["metrics"]["total_tokens"] > result["metrics"]["generated_tokens"] > 0


def test_set_f1_is_measured_with_entities_that_the_question_names(in_process, store, tmp_path):
    directory = tmp_path / "firms"
    directory.mkdir()
    (directory / "graph.ttl").write_text('<http://x/a> <http://x/name> "Acme" ; <http://x/city> "Toulouse" .')
    query = "SELECT ?c { <http://x/b> <http://x/city> ?c }"
    questions = "".join(
        f'- {{id: {id_}, question: {{en: "Where is Acme?"}}, query: {{sparql: "{sparql}"}}}}\n'
        for id_, sparql in enumerate((query, query.replace("/b", "/a")))
    )
    (directory / "questions.yml").write_text(f"questions:\n{questions}")
    file = tmp_path / "figures.json"
    asked = ("eval", "tiny", "ck25", "--data", str(directory), "--text2sparql", "--json", str(file))
    code, out, err = in_process(*asked)
    assert (code, err) == (0, "")
    assert "Set F1" in out
    result = json.loads(file.read_text())
    # The first gold query finds nothing, so that its question is left out of the mean.
    assert [record["measures"]["set_f1"] for record in result["records"]] == [None, 0.0]
    # The first one names another entity, but the question names Acme.
    assert {record["group"] for record in result["records"]} == {"http://x/a : http://x/city"}


def test_a_sample_is_drawn_and_evaluations_are_averaged(in_process, store, data, tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    asked = ("eval", "tiny", "metaqa-1hop", "--data", str(data), "--runs", "2")
    code, out, err = in_process(*asked, "--sample", "hops:2", "--json", str(one))
    assert (code, err) == (0, "")
    assert "KG-R1: Hit@1; KnowCoder-A1: EM; ISP-KGR: Hit" in out
    assert "(K = 2)" in out
    result = json.loads(one.read_text())
    assert (result["questions"], result["sample"], list(result["pass_at"])) == (2, "hops:2", ["1", "2"])
    assert in_process(*asked, "--sample", "random:3", "--json", str(two))[0] == 0
    code, out, _ = in_process("average", str(one), str(two), "--json")
    mean = json.loads(out)
    f1 = [json.loads(file.read_text())["metrics"]["f1"] for file in (one, two)]
    assert (code, mean["questions"]) == (0, 5)
    assert mean["metrics"]["f1"] == pytest.approx((2 * f1[0] + 3 * f1[1]) / 5)
    assert in_process("average", str(one), str(two))[1].splitlines()[-1].strip().startswith("average")
    code, _, err = in_process(*asked, "--sample", "some")
    assert (code, "is not KIND:N" in err) == (2, True)
    code, _, err = in_process(*asked, "--sample", "random:1", "--limit", "1")
    assert (code, "exclude each other" in err) == (2, True)


def test_a_graph_with_none_of_the_gold_answers_is_refused(in_process, store, data):
    (data / "1hop_test.txt").write_text("who is a parent of [Ada]\tm.0byron|m.0annabella\n")
    code, _, err = in_process("eval", "tiny", "metaqa-1hop", "--data", str(data))
    assert code == 2
    assert 'the graph "metaqa" has none of its gold answers (2 were looked up' in err


def test_greedy_figures_come_out_the_same_again(in_process, store, data, tmp_path):
    def figures(name):
        arguments = ("eval", "tiny", "metaqa-1hop", "--data", str(data), "--json", str(tmp_path / name))
        assert in_process(*arguments)[0] == 0
        result = json.loads((tmp_path / name).read_text())
        return {key: result[key] for key in ("metrics", "intervals", "records", "classes")}

    assert figures("a.json") == figures("b.json")


def test_a_version_a_directory_and_a_file_may_be_named(in_process, store, data, model, tmp_path):
    first = store.versions("tiny")[0]
    file = str(data / "1hop_test.txt")
    asked = ("metaqa-1hop", "--data", file, "--limit", "2")
    code, out, _ = in_process("eval", f"tiny@{first.id}", *asked)
    assert (code, f"tiny@{first.id} on 2 questions of metaqa-1hop (1hop_test.txt)" in out) == (0, True)
    code, out, _ = in_process("eval", "tiny@v000001", *asked)
    assert (code, f"tiny@{first.id} on" in out) == (0, True)
    code, out, _ = in_process("eval", str(first.path), *asked)
    assert (code, f"tiny@{first.id} on" in out) == (0, True)
    code, out, _ = in_process("eval", str(model), *asked, "--recipe", "kg-r1-small")
    assert (code, "recipe kg-r1-small" in out) == (0, True)


def test_a_graph_that_is_loaded_may_be_asked_instead(in_process, store, data, tmp_path):
    assert in_process("kg", "load", "mine", str(data / "kb.txt"))[0] == 0
    alone = tmp_path / "questions.txt"
    alone.write_text(f"{LINES[0]}\n")
    arguments = ("eval", "tiny", "metaqa-1hop", "--data", str(alone))
    code, out, _ = in_process(*arguments, "--kg", "mine")
    assert (code, "graph mine" in out) == (0, True)
    code, _, err = in_process(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith('error: no graph named "metaqa" (loaded graphs: mine)')


def test_a_mixture_is_asked_on_all_its_graphs_and_told_apart_by_part(in_process, store, data, tmp_path):
    data.rename(tmp_path / "metaqa")
    asked = [
        {
            "id": f"q{n}",
            "text": f"who leads {n}",
            "answers": ["Ann"],
            "topic_entities": [f"t{n}"],
            "kg": "towns",
        }
        for n in range(20)
    ]
    (tmp_path / "towns.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in asked))
    file = tmp_path / "figures.json"
    arguments = ("eval", "tiny", "metaqa-1hop@whole+towns.jsonl", "--json", str(file))
    code, _, err = in_process(*arguments, KBQA_DATA=str(tmp_path))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(
        'error: no graph named "towns" (no graph is loaded yet); load one with: kbqa kg load'
    )
    (tmp_path / "towns.tsv").write_text("t1\tleader\tAnn\n")
    assert in_process("kg", "load", "towns", str(tmp_path / "towns.tsv"))[0] == 0
    code, out, _ = in_process(*arguments)
    assert (code, "on 5 questions" in out, "2 graphs" in out) == (0, True, True)
    result = json.loads(file.read_text())
    assert result["graphs"].keys() == {"metaqa", "towns"}
    assert all(result["graphs"].values())
    parts = result["breakdowns"]["part"]
    assert {part: row["questions"] for part, row in parts.items()} == {
        "metaqa-1hop@whole": 3,
        "towns.jsonl": 2,
    }
    assert all(re.search(rf"^ *{re.escape(part)} +{parts[part]['questions']} ", out, re.M) for part in parts)
    code, _, err = in_process(*arguments, "--kg", "towns")
    assert (code, "has 2 graphs (metaqa, towns), and only one can be used here" in err) == (2, True)


def test_the_graph_of_a_kg_server_is_asked_where_one_is_named(in_process, graph_server, tmp_path, encoder):
    arguments = ("eval", str(encoder), "world", "--baseline", "ranking", "--limit", "3")
    results = []
    for where in ((), ("--kg-server", graph_server.url)):
        file = tmp_path / f"{len(where)}.json"
        assert in_process(*arguments, *where, "--json", str(file))[0] == 0
        results.append(json.loads(file.read_text()))
    here, there = results
    assert here["graphs"] == there["graphs"]
    assert here["records"] == there["records"]
    code, _, err = in_process(*arguments, "--kg", "mars", "--kg-server", graph_server.url)
    assert (code, 'no graph named "mars" (loaded graphs: world)' in err) == (2, True)


def test_a_graph_in_this_process_has_the_encoder_of_the_settings(in_process, store, data):
    arguments = ("eval", "tiny", "metaqa-1hop", "--data", str(data))
    code, _, err = in_process(*arguments, KBQA_KG_SERVER_ENCODER="/nowhere")
    assert (code, err.count("\n"), "/nowhere" in err) == (2, 1, True)


def test_two_evaluations_are_compared_and_runs_united(in_process, store, data, tmp_path):
    one, report = tmp_path / "one.json", tmp_path / "report.html"
    asked = ("eval", "tiny", "metaqa-1hop", "--data", str(data))
    assert in_process(*asked, "--json", str(one))[0] == 0
    two = tmp_path / "two.json"
    code, out, _ = in_process(
        *asked, "--runs", "2", "--compare", str(one), "--json", str(two), "--html", str(report)
    )
    assert (code, "against tiny@" in out, "p = 1" in out) == (0, True, True)
    result = json.loads(two.read_text())
    assert len(result["runs"]) == 2
    assert result["comparison"]["questions"] == 3
    assert result["metrics"]["llm_calls"] > json.loads(one.read_text())["metrics"]["llm_calls"]
    assert report.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody", "world"), '"nobody" is neither a directory nor a policy under'),
        (("nobody", "world"), "(there are: tiny, reader)"),
        (("no/where", "world"), '"no/where" is neither a directory'),
        (
            ("tiny@v000009-00000000", "world"),
            'policy tiny has no version "v000009-00000000" (it has: v000001-',
        ),
        (("tiny@v", "world"), 'policy tiny has several versions "v"'),
        (("tiny", "webqsq"), 'no data set named "webqsq"'),
        (("tiny", "metaqa-1hop"), "set KBQA_DATA"),
        (("tiny", "metaqa-1hop", "--data", "/nowhere"), "/nowhere: there is no such file or directory"),
        (("tiny", "world", "--split", "exam"), 'there is no split "exam" (there are: cold_start, train'),
        (("tiny", "world", "--kg", "nothing"), 'no graph named "nothing"'),
        (("tiny", "world", "--recipe", "nonsense"), 'no recipe named "nonsense"'),
        (("tiny", "world", "--recipe", "kbqa-r1-small"), "recipe kbqa-r1-small does not suit tiny@"),
        (("tiny", "world", "--baseline", "cot"), "name it as openai:MODEL"),
        (
            ("nobody/here", "world", "--baseline", "ranking"),
            "base model nobody/here is not on this machine: hf",
        ),
        (
            ("openai:m", "world", "--baseline", "ranking"),
            "needs a sentence encoder: name one, for ex",
        ),
        (
            ("openai:m", "world", "--baseline", "nearest"),
            "nearest needs a sentence encoder: name one, for ex",
        ),
        (("tiny", "world", "--known-hops"), "--max-hops and --known-hops are for --baseline ranking"),
        (("x", "world", "--baseline", "ranking", "--known-hops", "--max-hops", "2"), "give only one of them"),
        (("openai:m", "world"), "set KBQA_GATEWAY_CHAT_URL (or OPENAI_BASE_URL) to the URL of its endpoint"),
        (("openai:", "world"), "write openai:MODEL, with a model name"),
        (("openai:m", "world", "--baseline", "cot", "--recipe", "kg-r1"), "give only one of them"),
        (("tiny", "world", "--compare", "/nowhere.json"), "/nowhere.json: No such file"),
        (
            ("tiny", "world", "--json", "/no/where/x.json"),
            "the directory /no/where does not exist: create it first",
        ),
    ],
)
def test_what_is_wrong_is_one_line(in_process, store, arguments, says):
    code, out, err = in_process("eval", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert says in err


def test_a_malformed_line_is_named(in_process, store, data):
    (data / "1hop_test.txt").write_text(f"{LINES[0]}\nno topic\tByron\n")
    code, _, err = in_process("eval", "tiny", "metaqa-1hop", "--data", str(data))
    assert (code, err.count("\n")) == (2, 1)
    assert "1hop_test.txt:2: " in err


def test_a_split_without_questions_is_named(in_process, store, data):
    code, _, err = in_process("eval", "tiny", "metaqa-1hop", "--data", str(data), "--split", "validation")
    assert (code, err.count("\n")) == (2, 1)
    assert "metaqa-1hop has no suitable question in its split validation" in err


def test_damaged_weights_are_refused(in_process, store):
    version = store.newest("tiny")
    (version.path / "model.safetensors").write_bytes(b"x")
    code, _, err = in_process("eval", "tiny", "world")
    assert (code, "model.safetensors does not match its checksum" in err) == (2, True)


def test_an_adapter_is_evaluated_beside_its_base_or_says_what_to_install(in_process, store, model):
    trained = make_model()
    add_adapter(trained, Adapter(rank=4), seed=1)

    def write(directory):
        trained.save_pretrained(directory)
        make_tokenizer().save(str(directory / "tokenizer.json"))

    recipe = store.newest("tiny").recipe()
    for run, base_model in (("adapter", str(model)), ("orphan", "nobody/has-this")):
        store.publish(
            run,
            1,
            write,
            recipe=recipe,
            recipe_digest="0" * 64,
            step=1,
            metrics={},
            base_model=base_model,
            kind="lora",
        )
    code, out, err = in_process("eval", "adapter", "world", "--limit", "2")
    assert (code, err, "adapter@v000001" in out) == (0, "", True)
    code, _, err = in_process("eval", "orphan", "world", "--limit", "2")
    assert (code, "hf download nobody/has-this" in err, err.count("\n")) == (2, True, 1)


def test_a_directory_without_a_recipe_needs_one(in_process, model):
    code, _, err = in_process("eval", str(model), "world")
    assert (code, "name one with --recipe" in err) == (2, True)


def test_every_generated_world_may_be_asked(in_process, store):
    code, out, err = in_process("eval", "tiny", "world-all", "--limit", "1")
    assert (code, err) == (0, "")
    assert "on 1 questions of world-all (test)" in out
