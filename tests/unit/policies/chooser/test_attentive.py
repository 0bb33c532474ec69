"""What the attentive head computes, and that versions keep it."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file

from kbqa.policies.adapters import AdaptedModel
from kbqa.policies.chooser.attentive import AttentiveHead
from kbqa.policies.chooser.beginning import WORD_PIECE, begin_chooser
from kbqa.policies.chooser.encoding import best_behind, nearer
from kbqa.policies.chooser.model import ATTENTIVE, relations_of
from kbqa.policies.chooser.reading import KINDS
from kbqa.policies.in_process import load_model
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.form_chooser import FormChoosingProtocol as Forms
from kbqa.runs.student import Student
from kbqa.training.adapters import Adapter, add_adapter, merged
from kbqa.training.small_policy import save_model
from kbqa.training.tensor_files import trained_parameters
from tests.unit.encoders import save_encoder
from tests.unit.policies.chooser.episodes import AGAIN, AHEAD, ASKED, FORMS, read


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"), words=("that", "this", "those"))
    return *begin_chooser(encoder, Forms.tags, seed=1, head=ATTENTIVE), encoder


@pytest.fixture
def codec(begun):
    return TokenizerCodec(begun[1])


@pytest.fixture
def model(begun):
    """As if something had been learned."""
    model = copy.deepcopy(begun[0])
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(2)
        for parameter in model.head.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def every_decision(codec, model):
    return [decision for text in (ASKED, AGAIN, FORMS, AHEAD) for decision in read(codec, model, text)]


def test_what_else_is_in_a_batch_does_not_matter(codec, model):
    asked = every_decision(codec, model)
    with torch.no_grad():
        together = model(asked)
        for row, decision in zip(together, asked, strict=True):
            alone = model([decision])[0]
            torch.testing.assert_close(row[: len(decision.options)], alone, atol=1e-4, rtol=1e-4)
            assert row[len(decision.options) :].isneginf().all()


def test_the_order_of_options_does_not_matter(codec, model):
    [_, decision] = read(codec, model, AGAIN)
    turned = decision._replace(options=decision.options[::-1])
    with torch.no_grad():
        torch.testing.assert_close(model([decision])[0].flip(0), model([turned])[0], atol=1e-4, rtol=1e-4)


def test_at_the_beginning_it_ranks_by_what_the_encoder_says(begun, codec):
    """By the gain in similarity, the gain by the best relation behind, and the cosine of the option."""
    model = begun[0]
    [decision] = read(codec, model, AHEAD)
    with torch.no_grad():
        encoded = model.encode([decision.question], relations_of([decision]))
        model.head.out.weight.zero_(), model.head.out.bias.zero_()
        logits = model([decision])[0]
        question, path = encoded.sentences, torch.zeros(1, encoded.vectors.shape[1])
        gain = nearer(question, path, encoded.vectors)[0]
        behind = best_behind(encoded, [decision], question, path, 3)[0]
        cosine = torch.nn.functional.normalize(encoded.vectors, dim=1) @ question[0]
    places = [encoded.relations[option.words.plain] for option in decision.options]
    expected = 15 * gain[places] + 20 * behind + 3 * cosine[places]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ("<1> directed by<then><inverse> starring<2> starring", False),
        ("<1> directed by<then><inverse> starring<2><missing> starring", False),
        ("<1> directed by<then><inverse> starring<2> born", True),
        ("<1> directed by<then><inverse> starring<2><inverse> starring", True),
        ("<1> directed by<then> starring<2> starring", True),
        ("<1> starring<then><inverse> starring<2> born", True),
    ],
)
def test_what_is_said_by_a_relation_at_hand_is_not_looked_for_backwards_behind_another(
    codec, model, options, counts
):
    [decision] = read(codec, model, f"<question>who <topic></question><options>{options}</options>")
    with torch.no_grad():
        encoded = model.encode([decision.question], relations_of([decision]))
        places, (first, _) = encoded.relations, decision.options
        vectors = torch.zeros_like(encoded.vectors)
        vectors[:, 2] = 1.0
        vectors[places[first.words.plain]] = torch.eye(vectors.shape[1])[0]
        vectors[places[first.behind[0]]] = torch.eye(vectors.shape[1])[1]
        question = torch.nn.functional.normalize(torch.eye(vectors.shape[1])[:2].sum(0), dim=0)[None]
        encoded = encoded._replace(vectors=vectors)
        behind = best_behind(encoded, [decision], question, torch.zeros_like(question), 2)
    assert behind[0].tolist() == pytest.approx([1 - 0.5**0.5 if counts else 0.0, 0.0], abs=1e-5)


def test_an_option_about_a_topic_reads_the_question_around_it(codec, model):
    [decision] = read(codec, model, FORMS.replace("directed by", "starring"))
    one, other = decision.options[0].words, decision.options[1].words
    assert one.plain == other.plain
    with torch.no_grad():
        for layer in model.head.layers:
            layer.near.zero_()
        alike = model([decision])[0]
        for layer in model.head.layers:
            layer.near.fill_(1.0)
        apart = model([decision])[0]
    assert alike[0] == pytest.approx(float(alike[1]), abs=1e-4)
    assert abs(apart[0] - apart[1]) > 1e-3


def test_a_question_without_options_but_the_answer(codec, model):
    text = "<question>who directed it ?</question><options><0> answer</options>"
    with torch.no_grad():
        assert model(read(codec, model, text)).shape == (1, 1)


def test_a_directory_keeps_its_head(begun, model, codec, tmp_path):
    save_model(model, begun[1], tmp_path, pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    loaded = load_model(tmp_path)
    assert isinstance(loaded.head, AttentiveHead)
    asked = every_decision(codec, model)
    with torch.no_grad():
        torch.testing.assert_close(loaded(asked), model(asked))


def test_an_adapter_of_an_encoder_keeps_its_head(begun, tmp_path):
    *_, encoder = begun
    student = Student.pretrained(str(encoder), Forms.tags, seed=2, chooser_head=ATTENTIVE)
    add_adapter(student.model, Adapter(rank=4, alpha=8, targets=("query", "value")), 3, str(encoder))
    with torch.no_grad():
        for parameter in student.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01)
    student.save(tmp_path)
    found = AdaptedModel.load(tmp_path, str(encoder), None).model
    assert isinstance(found.head, AttentiveHead)
    torch.testing.assert_close(found.head.state_dict(), merged(student.model).head.state_dict())


def test_an_option_that_goes_backwards_loses_what_is_set(codec, model):
    [decision] = read(codec, model, FORMS)
    kinds = [option.words.kind for option in decision.options]
    with torch.no_grad():
        before = model([decision])[0]
        model.head.backwards.fill_(2.0)
        lost = before - model([decision])[0]
    expected = [2.0 if "<inverse>" in KINDS[kind] else 0.0 for kind in kinds]
    assert 0 < sum(expected) < 2 * len(expected)
    torch.testing.assert_close(lost, torch.tensor(expected))


def test_what_is_set_is_kept_by_versions_and_is_not_trained(begun, tmp_path):
    *_, encoder = begun
    student = Student.pretrained(str(encoder), Forms.tags, seed=2, chooser_head=ATTENTIVE)
    add_adapter(student.model, Adapter(rank=4, alpha=8, targets=("query", "value")), 3, str(encoder))
    assert not any("backwards" in name for name in trained_parameters(student.model))
    [name] = [name for name, _ in student.model.named_buffers() if name.endswith("default.backwards")]
    student.model.get_buffer(name).fill_(2.0)
    student.save(tmp_path)
    assert float(AdaptedModel.load(tmp_path, str(encoder), None).model.head.backwards) == 2


def test_a_version_in_which_nothing_was_set_loses_nothing(begun, tmp_path):
    *_, encoder = begun
    student = Student.pretrained(str(encoder), Forms.tags, seed=2, chooser_head=ATTENTIVE)
    add_adapter(student.model, Adapter(rank=4, alpha=8, targets=("query", "value")), 3, str(encoder))
    student.save(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    weights = {name: tensor for name, tensor in load_file(file).items() if not name.endswith("backwards")}
    save_file(weights, file)
    assert float(AdaptedModel.load(tmp_path, str(encoder), None).model.head.backwards) == 0


def test_saving_an_adapter_asks_no_hub(begun, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("peft.utils.other.file_exists", lambda *place, **_: asked.append(place))
    *_, encoder = begun
    student = Student.pretrained(str(encoder), Forms.tags, seed=2, chooser_head=ATTENTIVE)
    add_adapter(student.model, Adapter(rank=4, alpha=8, targets=("query", "value")), 3, "some/model")
    student.save(tmp_path)
    assert asked == []
    assert "some/model" in (tmp_path / "adapter_config.json").read_text()
