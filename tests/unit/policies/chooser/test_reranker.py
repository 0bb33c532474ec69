"""The re-ranker: what it reads of a form, how it is loaded, and how an engine uses it."""

from __future__ import annotations

import copy
import gc
import json
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from peft import LoraConfig, get_peft_model

from kbqa.errors import PolicyIntegrityError, PolicyUnavailableError
from kbqa.policies.adapters import RERANKER, load_reranker
from kbqa.policies.chooser.beginning import begin_chooser
from kbqa.policies.chooser.policy import ChooserPolicy
from kbqa.policies.chooser.reading import KINDS, Form, Words, form_of
from kbqa.policies.chooser.reranker import Reranker
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.form_chooser import FormChoosingProtocol as Forms
from kbqa.trajectory import Segment
from tests.unit.encoders import save_encoder, save_multilingual_encoder
from tests.unit.policies.chooser.episodes import AGAIN, ASKED, tokens

INVERSE = KINDS.index(("<inverse>",))


@pytest.fixture(scope="module", params=[save_encoder, save_multilingual_encoder])
def base(request, tmp_path_factory):
    """A base, a chooser of forms on it, and its codec."""
    encoder = request.param(tmp_path_factory.mktemp("base"), words=("that", "this", "those"))
    chooser, tokenizer = begin_chooser(encoder, Forms.tags, seed=1)
    return encoder, chooser, TokenizerCodec(tokenizer)


@pytest.fixture
def reranker(base):
    return Reranker.begin(base[1], base[0])


@pytest.fixture
def form(base):
    codec = base[2]

    def form(question, *path):
        """Of a question's text, and words or (words, kind, topic) for each relation."""
        steps = [step if isinstance(step, tuple) else (step, 0, 0) for step in path]
        words = (Words(tuple(codec.encode([Segment(text)])), kind, topic) for text, kind, topic in steps)
        return Form(tuple(codec.encode([Segment(question)])), tuple(words))

    return form


def adapted(model, *whole):
    return get_peft_model(
        model, LoraConfig(r=4, lora_alpha=8, target_modules=["query", "dense"], modules_to_save=whole)
    )


@torch.inference_mode()
def rated(reranker, *forms):
    return reranker(forms).tolist()


def test_a_rating_depends_on_nothing_else_in_the_pass(reranker, form):
    short, long = (
        form("who is it", "born"),
        form("who directed films starring it", "actor", "films", "author"),
    )
    assert rated(reranker, short, long) == pytest.approx(
        [*rated(reranker, short), *rated(reranker, long)], abs=1e-5
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("directed by", "born"), ("born", "directed by")),
        (("directed by",), (("directed by", INVERSE, 0),)),
        (("directed by",), (("directed by", 0, 2),)),
        (("directed", "by"), ("directed by",)),
    ],
)
def test_order_direction_topic_and_where_a_relation_ends_count(reranker, form, one, other):
    ratings = rated(reranker, form("who is <topic>", *one), form("who is <topic>", *other))
    assert abs(ratings[0] - ratings[1]) > 1e-4


def test_a_word_is_read_in_place_of_a_topic(reranker, form):
    assert rated(reranker, form("who is <topic> ?", "born")) == rated(reranker, form("who is it ?", "born"))


def test_what_is_too_long_is_cut(reranker, form):
    assert len(rated(reranker, form("who is it " * 80, *["directed by " * 40] * 9))) == 1


def test_a_form_without_relations_is_rated_too(reranker, form):
    assert len(rated(reranker, form("who is it"), Form((), ()))) == 2


@pytest.fixture
def version(base, tmp_path):
    """A directory with a trained re-ranker, and that re-ranker."""
    encoder, chooser, _ = base
    model = adapted(Reranker.begin(chooser, encoder, seed=3), "kind", "rating")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(tmp_path / RERANKER)
    return tmp_path, model.eval()


def test_it_is_loaded_as_it_was_trained(base, version, reranker, form):
    encoder, chooser, _ = base
    forms = [form("who is it", "born"), form("who directed it", "directed by", "born")]
    loaded = load_reranker(version[0], str(encoder), chooser)
    assert rated(loaded, *forms) == pytest.approx(rated(version[1], *forms), abs=1e-5)
    assert rated(loaded, *forms) != pytest.approx(rated(reranker, *forms), abs=1e-3)


def test_a_version_need_not_have_one(base, tmp_path):
    assert load_reranker(tmp_path, str(base[0]), base[1]) is None


def test_a_version_has_that_of_the_version_with_which_it_began(base, version, tmp_path, form):
    encoder, chooser, _ = base
    begun, trained = version[0], tmp_path / "trained"
    trained.mkdir()
    (begun / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(encoder)}))
    shutil.copy(begun / RERANKER / "adapter_model.safetensors", begun)
    loaded = load_reranker(trained, str(begun), chooser)
    asked = form("who is it", "born")
    assert rated(loaded, asked) == pytest.approx(rated(version[1], asked), abs=1e-5)
    shutil.rmtree(begun / RERANKER)
    assert load_reranker(trained, str(begun), chooser) is None


def test_versions_that_began_with_the_same_one_share_its_reranker(base, version, tmp_path):
    encoder, chooser, _ = base
    begun = version[0]
    (begun / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(encoder)}))
    shutil.copy(begun / RERANKER / "adapter_model.safetensors", begun)
    first, second = (tmp_path / name for name in ("first", "second"))
    first.mkdir()
    second.mkdir()
    shared = load_reranker(first, str(begun), chooser)
    assert load_reranker(second, str(begun), chooser) is shared
    shutil.copytree(begun / RERANKER, second / RERANKER)
    assert load_reranker(second, str(encoder), chooser) is not shared


def test_a_reranker_that_nothing_uses_is_freed(base, version):
    encoder, chooser, _ = base
    loaded = weakref.ref(load_reranker(version[0], str(encoder), chooser))
    gc.collect()
    assert loaded() is None


def test_a_damaged_one_is_refused(base, version):
    (version[0] / RERANKER / "adapter_model.safetensors").write_bytes(b"x")
    with pytest.raises(PolicyIntegrityError, match="the adapter cannot be loaded"):
        load_reranker(version[0], str(base[0]), base[1])


def test_an_adapter_of_something_else_is_refused(base, version):
    encoder, chooser, _ = base
    shutil.rmtree(version[0] / RERANKER)
    adapted(copy.deepcopy(chooser), "head").save_pretrained(version[0] / RERANKER)
    with pytest.raises(PolicyIntegrityError, match="does not fit"):
        load_reranker(version[0], str(encoder), chooser)


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_engine_rates_the_forms_of_episodes(model, codec, beginning, deterministic):
    """Of several callers at once, each of which gets its own."""
    policy = ChooserPolicy(model, "v", deterministic=deterministic)
    episodes = [tokens(codec, ASKED), tokens(codec, f"{AGAIN}<0>")]
    assert policy.rated(episodes) == [0.0, 0.0]
    policy.reranker = Reranker.begin(model, beginning[0])
    expected = rated(policy.reranker, *(form_of(episode, model.vocabulary) for episode in episodes))
    assert expected[0] != pytest.approx(expected[1], abs=1e-4)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(policy.rated, [episodes, episodes[::-1], episodes[:1], []] * 8))
    for number, ratings in enumerate(found):
        wanted = [expected, expected[::-1], expected[:1], []][number % 4]
        assert ratings == (wanted if deterministic and number % 4 == 0 else pytest.approx(wanted, abs=1e-5))
    policy.close()


def test_a_closed_engine_rates_nothing(model, codec, beginning):
    policy = ChooserPolicy(model, "v")
    policy.reranker = Reranker.begin(model, beginning[0])
    policy.close()
    with pytest.raises(PolicyUnavailableError):
        policy.rated([tokens(codec, ASKED)])
