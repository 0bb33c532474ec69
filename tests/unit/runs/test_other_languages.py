"""A policy that chooses begins with a multilingual encoder, and learns German from questions and answers."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import product

import pytest
import torch
from transformers import AutoModel

from kbqa.errors import PolicyIntegrityError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.planning.architectures import architecture_of
from kbqa.policies.adapters import AdaptedModel
from kbqa.policies.chooser.beginning import begin_chooser, is_encoder
from kbqa.policy_store import PolicyStore
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train
from tests.unit.encoders import save_multilingual_encoder

# A relation, and ways to ask for it, of which the last one belongs to the test.
ASKED = {
    "Regisseur": ("wer führte Regie bei {}", "von wem wurde {} gedreht", "wer drehte {}"),
    "Erscheinungsjahr": ("in welchem Jahr erschien {}", "wann erschien {}", "wann kam {} heraus"),
    "Hauptdarsteller": (
        "wer spielte in {} mit",
        "welcher Schauspieler spielte in {}",
        "wer ist in {} zu sehen",
    ),
}
TYPES = ("bert", "xlm-roberta")


def words():
    texts = (*ASKED, *(text for ways in ASKED.values() for text in ways))
    return sorted({word for text in texts for word in text.split() if word != "{}"})


def facts():
    return [(f"Film {n}", relation, f"{relation} {n}") for n, relation in product(range(30), ASKED)]


def question(film, relation, text, answer):
    return {
        "id": f"{film} {text}",
        "kg": "filme",
        "question": text.format(film) + " ?",
        "topic_entities": [film],
        "answers": [answer],
    }


def write_questions(directory):
    """Of thirty films, six are for validation and six for the test."""
    directory.mkdir()
    parts = {"train": range(18), "validation": range(18, 24), "test": range(24, 30)}
    for part, films in parts.items():
        rows = [
            question(film, relation, text, answer)
            for film, relation, answer in facts()
            for text in ASKED[relation]
            if int(film.split()[1]) in films
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{part}.jsonl").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("model_type", TYPES)
def test_a_policy_learns_german_from_questions_and_answers(model_type, tmp_path):
    write_questions(tmp_path / "fragen")
    (tmp_path / "filme.txt").write_text("".join("|".join(fact) + "\n" for fact in facts()), encoding="utf-8")
    encoder = save_multilingual_encoder(tmp_path / "encoder", model_type=model_type, words=words())
    recipe = load_recipe(
        "kg-r1-chooser",
        {
            "base_model": str(encoder),
            "optimisation.lora.rank": 8,
            "rollout.max_turns": 2,
            "schedule.steps": 40,
            "schedule.questions_per_step": 8,
            "schedule.max_in_flight": 8,
            "schedule.validate_every": 20,
            "schedule.checkpoint_every": 20,
        },
    )
    directory = Runs(tmp_path / "runs").create(recipe, "fragen", SplitLimits(), 1)
    with closing(GraphCatalog(tmp_path)) as catalog:
        catalog.load("filme", tmp_path / "filme.txt")
        with open_run(directory, LocalGraphTools(catalog), tmp_path) as context:
            train(context)
    f1 = json.loads(directory.summary_path.read_text())["f1"]
    assert f1["base"] < 0.6
    assert f1["rl"] > 0.9
    versions = directory.progress()["results"]["versions"]
    version = PolicyStore(tmp_path / "policies").get(directory.id, versions["rl"])
    adapted = AdaptedModel.load(version.path, version.manifest.base_model, None).model
    assert adapted.bert.config.model_type == model_type


@pytest.mark.parametrize("model_type", TYPES)
def test_it_reads_a_text_as_its_base_does(model_type, tmp_path):
    encoder = save_multilingual_encoder(tmp_path / "encoder", model_type=model_type)
    assert is_encoder(encoder)
    assert architecture_of(load_recipe("kg-r1-chooser", {"base_model": str(encoder)})) is None
    chooser, tokenizer = begin_chooser(encoder, ChoosingProtocol.tags, seed=1)
    alone = AutoModel.from_pretrained(encoder, add_pooling_layer=False)
    ids = tokenizer.encode("it ist ein Film").ids
    with torch.no_grad():
        states = alone(input_ids=torch.tensor([ids])).last_hidden_state
        torch.testing.assert_close(chooser.tokens([tuple(ids[1:-1])])[0], states)


def test_a_tag_is_no_word_even_where_the_matrix_has_a_row_for_it(tmp_path):
    encoder = save_multilingual_encoder(tmp_path)
    chooser, tokenizer = begin_chooser(encoder, ChoosingProtocol.tags, seed=1)
    tags = chooser.config.chooser_tags
    assert tags["<error>"] < chooser.config.vocab_size
    words = {"it": tokenizer.token_to_id("▁it"), **tags}
    for stray, fault in (("it", None), ("<error>", "is a tag where no tag belongs")):
        written = f"<question> it {stray} </question> <options> <1> it <2> it </options> <1>"
        ids = [words[part] for part in written.split()]
        found = chooser.fault(ids, [len(ids) - 1])
        assert (found is None) == (fault is None)
        assert (fault or "") in (found or "")


def test_an_encoder_of_one_other_language_is_refused_with_the_word_that_it_lacks(tmp_path):
    encoder = save_multilingual_encoder(tmp_path)
    file = encoder / "tokenizer.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"▁it"', '"▁es"'), encoding="utf-8")
    with pytest.raises(PolicyIntegrityError, match="lacks ▁it: use an encoder for English or for several"):
        begin_chooser(encoder, ChoosingProtocol.tags, seed=1)
