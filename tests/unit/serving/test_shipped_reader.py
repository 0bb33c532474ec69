"""The policy that kbqa ships: complete, and right about the README's own example."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.bases import READER as BASE
from kbqa.bases import find_base
from kbqa.confidence import choices_of
from kbqa.errors import PolicyIntegrityError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.adapters import RERANKER
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import shipped
from kbqa.policy_store.shipped import shipped_reader
from kbqa.recipes import load_recipe, recipe_from
from kbqa.rollouts import answering_rollout
from kbqa.runs.student import Student
from kbqa.serving.hosting import open_in_process
from kbqa.serving.players import Players
from kbqa.training.adapters import add_adapter
from kbqa.trajectory import DECLINED, Question

STAFF = [("Ann", "Helen"), ("Bob", "Helen"), ("Helen", "Diego")]
README = Path(__file__).parents[3] / "README.md"


@pytest.fixture(scope="module")
def version():
    return shipped_reader()


@pytest.fixture(scope="module")
def ask(version, tmp_path_factory):
    """`ask(question, *topics)`: its episode on the graph that the README writes, or on another one."""
    home = tmp_path_factory.mktemp("home")
    lines = re.findall(r"'([^'|]+\|[^'|]+\|[^'|]+)'", README.read_text(encoding="utf-8"))
    assert len(lines) == 6
    (home / "films.txt").write_text("".join(f"{line}\n" for line in lines))
    codec = TokenizerCodec.load(version.path)
    with closing(GraphCatalog(home)) as graphs, closing(hosted(version, codec)) as engine:
        (home / "staff.txt").write_text(
            "Ann|reports to|Helen\nBob|reports to|Helen\nHelen|reports to|Diego\n"
        )
        graphs.load("films", home / "films.txt")
        graphs.load("staff", home / "staff.txt")
        recipe = recipe_from(version.recipe(), "recipe.json")
        player = Players.of(recipe, engine.policy, codec).player(LocalGraphTools(graphs), 0)

        def ask(text: str, *topics: str, kg: str = "films"):
            return answering_rollout(player, Question("q", text, (), topics, kg), 0.0)

        yield ask


def hosted(version, codec):
    return open_in_process(version.path, version.manifest, codec, version.id)


def sure(version, run) -> float:
    return version.manifest.calibration.confidence(choices_of(run))


def test_it_is_complete_and_of_a_few_megabytes(version):
    for name, digest in version.manifest.files.items():
        assert hashlib.sha256((version.path / name).read_bytes()).hexdigest() == digest, name
    assert sum(file.stat().st_size for file in version.path.rglob("*")) < 8e6
    assert version.manifest.recipe_digest == load_recipe("reader").digest()


@pytest.mark.parametrize(
    ("question", "topic", "answer"),
    [
        ("who directed Heat ?", "Heat", "Michael Mann"),
        ("where was the director of Ali born ?", "Ali", "Chicago"),
        ("which films did Michael Mann direct ?", "Michael Mann", {"Heat", "Ali"}),
    ],
)
def test_it_answers_on_a_graph_that_was_just_written(version, ask, question, topic, answer):
    run = ask(question, topic)
    assert set(run.answers) == ({answer} if isinstance(answer, str) else answer)
    assert sure(version, run) > 0.5


def test_it_counts_what_a_delimited_file_says_to_be_of_a_type(version, ask):
    run = ask("how many films are there ?")
    assert (run.answers, run.search.presence > 0.5) == (("2",), True)
    assert sure(version, run) > 0.5


@pytest.mark.parametrize(
    ("question", "answers"),
    [("who reports to Helen ?", {"Ann", "Bob"}), ("who does Helen report to ?", {"Diego"})],
)
def test_it_tells_the_directions_of_a_relation_apart(version, ask, question, answers):
    run = ask(question, "Helen", kg="staff")
    assert set(run.answers) == answers
    assert sure(version, run) > 0.5


@pytest.mark.parametrize(
    ("question", "topic", "lacks"),
    [
        ("how tall is Michael Mann ?", "Michael Mann", "height"),
        ("who composed the music of Ali ?", "Ali", "composer"),
    ],
)
def test_it_says_what_a_graph_lacks(version, ask, question, topic, lacks):
    run = ask(question, topic)
    assert run.turns[0].thought == f'{DECLINED}: no "{lacks}" here'
    assert run.search.presence < 0.1
    assert sure(version, run) < 0.5


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda d: (d / RERANKER / "adapter_model.safetensors").write_bytes(b"x"),
            "does not match its checksum",
        ),
        (lambda d: (d / RERANKER / "adapter_config.json").unlink(), "is missing"),
        (lambda d: (d / "manifest.json").write_text("{"), "no readable manifest"),
    ],
)
def test_a_damaged_installation_is_refused(version, tmp_path, monkeypatch, damage, problem):
    shutil.copytree(version.path, tmp_path / "reader")
    damage(tmp_path / "reader")
    monkeypatch.setattr(
        shipped, "find_base", lambda name: replace(find_base(name), directory=tmp_path / "reader")
    )
    with pytest.raises(PolicyIntegrityError, match=f"(?s){problem}.*install kbqa again"):
        shipped_reader()


def test_its_re_ranker_comes_and_goes_with_it(version, tmp_path):
    codec = TokenizerCodec.load(version.path)
    shutil.copytree(version.path, tmp_path / "without", ignore=shutil.ignore_patterns(RERANKER))
    with closing(hosted(version, codec)) as engine:
        assert engine.policy.reranker is not None
        engine.swap(replace(version, path=tmp_path / "without"))
        assert engine.policy.reranker is None
        engine.swap(version)
        assert engine.policy.reranker is not None


def test_what_is_trained_from_it_has_its_re_ranker_where_questions_are_searched(version, tmp_path):
    codec, recipe = TokenizerCodec.load(version.path), load_recipe("kg-r1-reader")
    student = Student.pretrained(BASE, (), seed=1)
    assert recipe.optimisation.lora is not None
    add_adapter(student.model, recipe.optimisation.lora.build(), seed=1, base_model=BASE)
    student.save(tmp_path)
    manifest = version.manifest.model_copy(update={"base_model": BASE, "probe": None})
    resolved = recipe.model_dump(mode="json")
    for beam, searches, has_one in ((3, True, True), (1, True, False), (3, False, False)):
        resolved["evaluation"]["beam"] = beam
        (tmp_path / "recipe.json").write_text(json.dumps(resolved))
        with closing(open_in_process(tmp_path, manifest, codec, "v", searches=searches)) as engine:
            assert (engine.policy.reranker is not None) == has_one


def test_it_is_a_base_to_start_from(version):
    assert find_base(BASE).origin == "package"
    student = Student.pretrained(BASE, (), seed=1)
    assert student.model.head.direction.any()  # trained
