"""The tokenizer of a small policy: what a copying head needs of it."""

from __future__ import annotations

import pytest

from kbqa.training.small_policy import train_tokenizer

TEXTS = [
    'get_tail_entities("Heat", "film.actor.film")',
    'Tail entities for relation "film.actor.film" with head "Heat": Ann Lee, Bo Day',
    "who is Ann Lee ?",
] * 9


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, ["<answer>", "</answer>"], 600)


def pieces(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("before", ['"', '("', " ", ": ", ", ", "<answer>"])
def test_a_name_is_the_same_tokens_wherever_it_stands(tokenizer, before):
    name = pieces(tokenizer, "Ann Lee")
    assert pieces(tokenizer, f"{before}Ann Lee")[-len(name) :] == name


@pytest.mark.parametrize("mark", ['("', '", ', '")', ": ", ", "])
def test_what_stands_around_arguments_and_items_is_a_token_of_its_own_kind(tokenizer, mark):
    assert len(pieces(tokenizer, mark)) == 1


def test_a_percent_encoded_blank_is_one_token_between_the_words_of_a_name():
    tokenizer = train_tokenizer(["<urn:kbqa:e:Ann%20Lee>", "Ann Lee"] * 9, ["<answer>"], 400)
    name = pieces(tokenizer, "Ann Lee")
    assert len(pieces(tokenizer, "%20")) == 1
    assert len(pieces(tokenizer, "Ann%20Lee")) == len(name)


@pytest.mark.parametrize("text", ["a:b, c", "Æon (Flux),  :\n\t42", '"x" : y'])
def test_any_text_round_trips(tokenizer, text):
    assert tokenizer.decode(pieces(tokenizer, text)) == text
