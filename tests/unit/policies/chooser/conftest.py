"""A chooser at its beginning, one of forms, and an engine."""

from __future__ import annotations

import pytest

from kbqa.policies.chooser.beginning import begin_chooser
from kbqa.policies.chooser.policy import ChooserPolicy
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.chooser import ChoosingProtocol as Dialect
from kbqa.protocols.form_chooser import FormChoosingProtocol as Forms
from tests.unit.encoders import save_encoder


@pytest.fixture(scope="module")
def beginning(tmp_path_factory):
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"))
    model, tokenizer = begin_chooser(encoder, Dialect.tags, seed=1)
    return encoder, model, tokenizer


@pytest.fixture
def model(beginning):
    return beginning[1]


@pytest.fixture
def codec(beginning):
    return TokenizerCodec(beginning[2])


@pytest.fixture
def policy(model):
    policy = ChooserPolicy(model, "v000001-aaaaaaaa")
    yield policy
    policy.close()


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """A chooser of forms, and its codec."""
    encoder = save_encoder(tmp_path_factory.mktemp("forms"), words=("that", "this", "those"))
    model, tokenizer = begin_chooser(encoder, Forms.tags, seed=1)
    return model, TokenizerCodec(tokenizer)
