"""What the model of a chooser with the recurrent head computes, and how it is saved."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import BertModel

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.chooser.beginning import WORD_PIECE, begin_chooser, is_encoder
from kbqa.policies.chooser.encoding import Encoded, further, nearer
from kbqa.policies.chooser.model import HEADS, Chooser
from kbqa.policies.chooser.reading import Decision, Option, Words
from kbqa.policies.chooser.recurrent import RecurrentHead
from kbqa.policies.in_process import load_model
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.chooser import ChoosingProtocol as Dialect
from kbqa.training.likelihood import ChoiceLikelihood
from kbqa.training.packing import pack
from kbqa.training.small_policy import save_model
from kbqa.trajectory import Segment
from tests.unit.policies.chooser.episodes import AGAIN, AHEAD, ASKED, FORMS, read, tokens


def test_the_best_relation_behind_an_option_raises_its_score(forms):
    model, codec = forms
    [decision] = read(codec, model, AHEAD)
    plain = decision._replace(options=tuple(option._replace(behind=()) for option in decision.options))
    with torch.no_grad():
        gained = (model([decision]) - model([plain]))[0]
        words = [option.words for option in decision.options]
        encoded = model.encode(
            [decision.question], [*words[:2], *decision.options[0].behind, *decision.options[1].behind]
        )
    question, vectors = encoded.sentences[0], encoded.vectors
    first, second, city, born, starring = (vectors[place] for place in range(5))

    def gain(one, *others):
        sums = [one + other for other in others]
        return max(
            0.0, *(float(question @ both / both.norm() - question @ one / one.norm()) for both in sums)
        )

    weight = model.head.behind().item()
    assert gained.tolist() == pytest.approx(
        [weight * gain(first, city, born), weight * gain(second, starring), 0.0], abs=1e-4
    )


def test_what_a_second_relation_adds_is_the_gain_of_the_whole_path():
    generator = torch.Generator().manual_seed(1)
    questions = functional.normalize(torch.randn(2, 8, generator=generator), dim=1)
    paths, vectors = torch.randn(2, 8, generator=generator), torch.randn(5, 8, generator=generator)
    paths[0] = 0  # nothing was taken yet
    pairs = torch.tensor([[0, 1, 2], [1, 0, 4], [1, 3, 3]]).T

    def cosine(walk, *relations):
        path = paths[walk] + vectors[list(relations)].sum(0)
        return float(questions[walk] @ path / path.norm())

    wanted = [cosine(n, v, w) - cosine(n, v) for n, v, w in pairs.T.tolist()]
    assert further(questions, paths, vectors, pairs).tolist() == pytest.approx(wanted, abs=1e-5)


def test_an_option_about_a_topic_reads_the_question_around_it(forms):
    """The same words are worth more for the topic beside which the question says them."""
    model, codec = forms
    [decision] = read(codec, model, FORMS.replace("directed by", "starring"))
    one, other = decision.options[0].words, decision.options[1].words
    assert one.plain == other.plain
    with torch.no_grad():
        logits = model([decision])[0]
        question = model.encode([decision.question], [one.plain])
    near_first, near_second = question.distance[0, 1], question.distance[0, 2]
    nearest = torch.where(near_first.abs() <= near_second.abs(), near_first, near_second)
    assert (question.distance[0, 0] == nearest).all()
    places = [decision.question.index(codec.encode([Segment(tag)])[0]) + 1 for tag in ("<topic>", "<topic2>")]
    assert [float(near[place]) for near, place in zip((near_first, near_second), places, strict=True)] == [
        0,
        0,
    ]
    assert logits[0] != pytest.approx(float(logits[1]), abs=1e-6)


def test_a_head_begins_as_it_says(model):
    """The first query is the encoder's own sentence vector, and nothing is added to kinds or distances."""
    head = model.head
    for name in ("add", "operate", "stress"):
        assert not getattr(head, name).weight.any(), name
    assert not head.order.any()
    assert 0.003 < head.attend.weight.std() < 0.007


def test_words_count_by_where_they_stand_once_it_has_learned_so(model, codec):
    """At the first turn, what is said behind the topic; at later ones, nothing has changed."""
    text = "<question>place of <topic> 's name ?</question><options><1> place<2> name</options>"
    [decision] = read(codec, model, text)
    learned = copy.deepcopy(model)
    with torch.no_grad():
        learned.head.order[0, 9:12] = 1.0  # up to three words behind the topic
        before, after = model([decision])[0], learned([decision])[0]
        later = Decision(decision.question, (decision.options[0].words,), decision.options)
        assert torch.equal(model([later]), learned([later]))
    assert after[1] - after[0] > before[1] - before[0]
    [encoded] = model.encode([decision.question], []).distance.tolist()
    at = decision.question.index(codec.encode([Segment("<topic>")])[0]) + 1
    assert encoded[0][at - 2 : at + 3] == [-2, -1, 0, 1, 2]


def test_a_relation_that_is_said_twice_is_said_near_the_topic_first():
    """the parents of the parents of X: each time that it is taken, another of the two words is done."""
    head, unit = RecurrentHead(4), torch.eye(4)
    question, parents = (1,), Words((2,), 0)
    states = torch.stack([unit[0], unit[1], unit[0], unit[2], unit[0] + unit[3]])[
        None
    ]  # the last one resembles it
    distance = torch.tensor([[[-4.0, -3.0, -2.0, 0.0, 30.0]]])
    mask = torch.ones(1, 5, dtype=torch.bool)
    encoded = Encoded({question: 0}, states, mask, distance, {parents: 0}, unit[:1])
    once = head.take(encoded, head.begin(encoded, [question]), [parents])
    twice = head.take(encoded, once, [parents])
    assert once.seen[0].argmax() == 2
    assert once.seen[0, 2] == 1 > 0.7 > once.seen[0, 0]
    assert twice.seen[0, [0, 2]].tolist() == [1, 1]
    assert twice.seen[0, [1, 3, 4]].max() < 0.1


def test_the_important_token_is_what_is_asked_for_once_it_has_learned_so(model, codec):
    [decision] = read(codec, model, ASKED)
    words = [option.words for option in decision.options]
    encoded = model.encode([decision.question], words)
    head = copy.deepcopy(model.head)
    with torch.no_grad():
        assert not head.importance(encoded.states).any()  # at the beginning
        head.salient.weight.copy_(10 * encoded.states[0, 1][None])
        important = int(head.importance(encoded.states)[0].argmax())
        state = head.begin(encoded, [decision.question])
        query = functional.normalize(encoded.states[0, important], dim=0)
        gained = head.gain() * nearer(encoded.sentences, state.path, encoded.vectors)
        follow = head.scores(encoded, state, 0).follow[0, 0]
    assert torch.allclose(follow, head.scale() * (encoded.vectors @ query) + gained[0], atol=1e-3)


def test_texts_of_similar_length_are_encoded_together(model, codec, monkeypatch):
    """What a text becomes does not depend on what is encoded beside it."""
    texts = [tuple(tokens(codec, "name " * (1 + number % 9) + "city")) for number in range(80)]
    shapes = []
    forward = BertModel.forward

    def watched(self, input_ids, **options):
        shapes.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **options)

    monkeypatch.setattr(BertModel, "forward", watched)
    with torch.no_grad():
        states, mask = model.tokens(texts)
        assert len(shapes) > 1
        padded = sum(rows * width for rows, width in shapes)
        assert padded < 0.9 * len(texts) * max(width for _, width in shapes)
        for place in (0, 8, 40, 79):
            alone, kept = model.tokens([texts[place]])
            assert mask[place].sum() == kept.sum() == len(texts[place]) + 2
            torch.testing.assert_close(states[place][mask[place]], alone[0], atol=1e-5, rtol=1e-4)


def test_operations_get_a_score_of_their_own_once_it_has_learned_so(forms):
    model, codec = forms
    [decision] = read(codec, model, FORMS)
    kinds = [option.words.kind for option in decision.options]
    with torch.no_grad():
        before = model([decision])[0]
        model.head.operate.bias += 1.0
        after = model([decision])[0]
        model.head.operate.bias -= 1.0
    # Relations have none: what counts is the operation relative to them.
    expected = [0.0 if kind < 2 else 1.0 for kind in kinds]
    assert (after - before).tolist() == pytest.approx(expected, abs=1e-5)


def test_at_the_beginning_the_first_query_is_the_sentence_vector(beginning):
    """So that what the encoder knows is there before anything is learned."""
    encoder, model, tokenizer = beginning
    codec = TokenizerCodec(tokenizer)
    [decision] = read(codec, model, ASKED.replace("<topic>", "heat"))
    bert = BertModel.from_pretrained(encoder, add_pooling_layer=False).eval()

    def sentence(text):
        ids = torch.tensor([[2, *tokens(codec, text), 3]])
        return torch.nn.functional.normalize(bert(ids).last_hidden_state.mean(1), dim=1)

    with torch.no_grad():
        logits = model([decision])
        cosines = [
            float(sentence("who directed heat ?") @ sentence(words).T)
            for words in ("directed by", "starring")
        ]
    # By the query, and by how much nearer a path of this one relation comes to the question than none.
    # The attention of the beginning is nearly, but not wholly, uniform.
    assert logits[0].tolist() == pytest.approx([(10 + 15) * cosine for cosine in cosines], abs=0.1)


def test_what_else_is_in_a_batch_does_not_matter(codec, model):
    asked = [*read(codec, model, AGAIN), *read(codec, model, ASKED.replace("who", "what is the city where"))]
    with torch.no_grad():
        together = model(asked)
        for row, decision in zip(together, asked, strict=True):
            alone = model([decision])[0]
            torch.testing.assert_close(row[: len(decision.options)], alone)
            assert row[len(decision.options) :].isneginf().all()


def test_the_order_of_options_does_not_matter(codec, model):
    [_, decision] = read(codec, model, AGAIN)
    turned = decision._replace(options=decision.options[::-1])
    with torch.no_grad():
        torch.testing.assert_close(model([decision])[0].flip(0), model([turned])[0])


def test_a_direction_changes_what_a_relation_is_worth_once_it_has_learned_so(codec, model):
    [_, decision] = read(codec, model, AGAIN)
    words = decision.options[2].words
    both = decision._replace(options=(Option(1, words), Option(2, Words(words.token_ids, kind=0))))
    with torch.no_grad():
        before = model([both])[0]
        assert before[0] == pytest.approx(float(before[1]))
        model.head.direction[1] += 0.1
        after = model([both])[0]
        model.head.direction[1] -= 0.1
    assert after[0] != pytest.approx(float(after[1]))


def test_a_relation_that_says_the_same_again_brings_a_path_no_nearer(codec, model):
    asked, words = (
        tuple(tokens(codec, "who directed it ?")),
        Words(tuple(tokens(codec, "directed by"))),
    )
    other = Words(tuple(tokens(codec, "city born")))
    with torch.no_grad():
        encoded = model.encode([asked], [words, other])
        begun = model.head.begin(encoded, [asked])
        first = nearer(encoded.sentences, begun.path, encoded.vectors)[0]
        taken = model.head.take(encoded, begun, [words])
        again = nearer(encoded.sentences, taken.path, encoded.vectors)[0]
    question = torch.nn.functional.normalize((encoded.states * encoded.mask[..., None]).sum(1), dim=1)[0]
    cosines = encoded.vectors @ question
    assert first.tolist() == pytest.approx(cosines.tolist(), abs=1e-5)
    assert float(again[0]) == pytest.approx(0.0, abs=1e-5)
    both = torch.nn.functional.normalize(encoded.vectors.sum(0), dim=0) @ question
    assert float(again[1]) == pytest.approx(float(both - cosines[0]), abs=1e-5)


FACTORS = {
    "scale": 10,
    "gain": 15,
    "behind": 20,
    "cover": 6,
    "near": 0.5,
    "match": 10,
    "first": 1,
    "again": 3,
}


def test_factors_begin_as_they_say_and_change_by_shares(model):
    head = copy.deepcopy(model.head)
    for name, initial in FACTORS.items():
        factor = getattr(head, name)
        assert factor().item() == pytest.approx(initial), name
        with torch.no_grad():
            factor.exponent += 0.001  # one step of Adam at this rate
        assert factor().item() == pytest.approx(1.01 * initial, rel=1e-3), name


@pytest.mark.parametrize("shown_ahead", [True, False])
def test_weights_of_earlier_versions_are_loaded(beginning, shown_ahead, tmp_path):
    """Factors were plain parameters, `behind` as a tenth; before that, nothing lay behind options."""
    _, model, tokenizer = beginning
    save_model(model, tokenizer, tmp_path, pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    weights = load_file(tmp_path / "model.safetensors")
    for name in FACTORS:
        del weights[f"head.{name}.exponent"]
    old = dict.fromkeys(FACTORS.keys() - {"behind"}, 7.0) | ({"ahead": 0.7} if shown_ahead else {})
    weights |= {f"head.{name}": torch.tensor(value) for name, value in old.items()}
    save_file(weights, tmp_path / "model.safetensors")
    head = load_model(tmp_path).head
    expected = {**dict.fromkeys(FACTORS, 7.0), "behind": 7.0 if shown_ahead else 20.0}
    assert {name: getattr(head, name)().item() for name in FACTORS} == pytest.approx(expected, rel=1e-5)
    assert torch.equal(head.salient.weight, model.head.salient.weight)


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_knows_fewer_kinds_of_options_has_zeros_for_the_others(beginning, tmp_path, head):
    model, tokenizer = begin_chooser(beginning[0], Dialect.tags, 1, head)
    save_model(model, tokenizer, tmp_path, pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    weights = load_file(tmp_path / "model.safetensors")
    rows = [name for name in weights if name.startswith(("head.direction", "head.operate", "head.kind."))]
    for name in rows:
        weights[name] = torch.ones_like(weights[name])[:-1].contiguous()
    save_file(weights, tmp_path / "model.safetensors")
    loaded = dict(load_model(tmp_path).named_parameters())
    for name in rows:
        assert torch.equal(loaded[name][-1], torch.zeros_like(loaded[name][-1])), name
        assert torch.equal(loaded[name][:-1], weights[name]), name


def test_it_is_saved_as_an_ordinary_directory(beginning, tmp_path):
    _, model, tokenizer = beginning
    save_model(model, tokenizer, tmp_path, pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, Chooser)
    decision = read(TokenizerCodec.load(tmp_path), loaded, AGAIN)[1]
    with torch.no_grad():
        torch.testing.assert_close(loaded([decision]), model([decision]))
    assert [name for name, p in loaded.named_parameters() if not p.requires_grad] == [
        name for name, p in model.named_parameters() if not p.requires_grad
    ]
    encoder = BertModel.from_pretrained(tmp_path, add_pooling_layer=False)
    torch.testing.assert_close(encoder.state_dict(), model.bert.state_dict())
    assert (is_encoder(tmp_path), is_encoder(beginning[0])) == (False, True)


@pytest.mark.parametrize("damage", ["cut", "other", "absent"])
def test_a_damaged_directory_is_refused(beginning, tmp_path, damage):
    _, model, tokenizer = beginning
    save_model(model, tokenizer, tmp_path, pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    weights = tmp_path / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "absent":
        weights.unlink()
    else:
        save_file({"bert.embeddings.word_embeddings.weight": torch.zeros(2, 2)}, weights)
    with pytest.raises(PolicyIntegrityError, match="the policy cannot be loaded"):
        load_model(tmp_path)


def test_a_base_that_is_no_encoder_in_english_is_refused(beginning, tmp_path):
    with pytest.raises(PolicyIntegrityError, match="no readable tokenizer"):
        begin_chooser(tmp_path, Dialect.tags, 1)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda ids, tag: None, None),
        (lambda ids, tag: ids.__setitem__(-1, tag("<2>")), None),
        (lambda ids, tag: ids.__setitem__(-1, tag("<7>")), "is not an option of its turn"),
        (lambda ids, tag: ids.__setitem__(-1, ids[1]), "is not an option of its turn"),
        (lambda ids, tag: ids.__setitem__(-2, tag("<error>")), "is not an option of its turn"),
        (lambda ids, tag: ids.__setitem__(1, tag("<error>")), "is a tag where no tag belongs"),
        (lambda ids, tag: ids.__setitem__(1, 10**6), "is not in the policy's vocabulary"),
    ],
)
def test_an_episode_whose_likelihood_cannot_be_computed_is_at_fault(model, codec, damage, fault):
    ids = tokens(codec, f"{AGAIN}<1>")
    choices = [at for at in range(1, len(ids)) if ids[at - 1] == model.config.chooser_tags["</options>"]]
    ids = list(ids)
    damage(ids, model.config.chooser_tags.__getitem__)
    found = model.fault(ids, choices)
    assert (found is None) if fault is None else (fault in found)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_a_reply_contains_it_is_at_fault_or_its_likelihood_is_finite(beginning_of_forms, data):
    model, episode = beginning_of_forms
    ids = list(episode)
    tags = sorted(model.config.chooser_tags.values())
    any_token = st.sampled_from([*tags, *tags, 0, 7, model.config.vocab_size - 1, tags[-1] + 1])
    for at in data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=6)):
        ids[at] = data.draw(any_token)
    written = data.draw(st.lists(st.integers(1, len(ids) - 1), max_size=3, unique=True).map(sorted))
    ends = [at for at in range(1, len(ids)) if ids[at - 1] == model.config.chooser_tags["</options>"]]
    written = written if data.draw(st.booleans()) else ends
    if model.fault(ids, written) is not None:
        return
    mask = [at in written for at in range(len(ids))]
    with torch.no_grad():
        for row in pack([ids], [mask], 8192):
            logprobs, _ = ChoiceLikelihood(model)(row)
            assert torch.isfinite(logprobs).all()


@pytest.fixture(scope="module")
def beginning_of_forms(forms):
    model, codec = forms
    return model, tokens(codec, f"{FORMS}<3><options><0> answer<1><then> born<2><none> number</options><0>")
