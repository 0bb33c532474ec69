"""The tokenizer of a small policy: what a copying head needs of it."""

from __future__ import annotations

import pytest

from kbqa.training.small_policy import train_tokenizer

TEXTS = ['Tail entities for relation "film.actor.film" with head "Heat": Ann Lee, Bo Day', "who is Ann Lee ?"] * 9


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, ["<answer>", "</answer>"], 600)


def pieces(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("before", ['"', " ", ": ", ", ", "<answer>"])
def test_a_name_is_the_same_tokens_wherever_it_stands(tokenizer, before):
    name = pieces(tokenizer, "Ann Lee")
    assert pieces(tokenizer, f"{before}Ann Lee")[-len(name) :] == name


@pytest.mark.parametrize("before", [": ", ", "])
def test_what_comes_before_an_item_of_a_listing_is_a_token_of_its_own_kind(tokenizer, before):
    assert len(pieces(tokenizer, before)) == 1
    assert pieces(tokenizer, before) != pieces(tokenizer, " ")


@pytest.mark.parametrize("text", ["a:b, c", "Æon (Flux),  :\n\t42", '"x" : y'])
def test_any_text_round_trips(tokenizer, text):
    assert tokenizer.decode(pieces(tokenizer, text)) == text
