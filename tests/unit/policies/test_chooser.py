"""A policy that chooses: what it reads, what it computes, its engine."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import BertModel

from kbqa.errors import PolicyIntegrityError, PolicyUnavailableError
from kbqa.policies.base import FinishReason, SamplingParams, Truncation
from kbqa.policies.chooser.beginning import END, PAD, begin_chooser, is_encoder
from kbqa.policies.chooser.model import Chooser, Encoded, Head, nearer
from kbqa.policies.chooser.policy import ChooserPolicy, _Swap
from kbqa.policies.chooser.reading import KINDS, ChooserVocabulary, Decision, Option, Words, decisions
from kbqa.policies.in_process import load_model, open_policy
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.chooser import ChoosingProtocol as Dialect
from kbqa.protocols.form_chooser import FormChoosingProtocol as Forms
from kbqa.training.small_policy import save_model
from kbqa.trajectory import Segment
from tests.unit.encoders import save_encoder

ASKED = "<question>who directed <topic> ?</question><options><1> directed by<2><inverse> starring</options>"
AGAIN = f"{ASKED}<1><options><0> answer<1> born<2><inverse> directed by</options>"


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


def tokens(codec, text):
    return codec.encode([Segment(text)])


def read(codec, model, text):
    return [decision for _, decision in decisions(tokens(codec, text), model.vocabulary)]


@pytest.fixture
def policy(model):
    policy = ChooserPolicy(model, "v000001-aaaaaaaa")
    yield policy
    policy.close()


def params(**values):
    return SamplingParams(max_tokens=1, max_total_tokens=1024, **values)


def test_decisions_are_read_from_tokens(codec, model):
    first, second = read(codec, model, AGAIN)

    def words(text, kind=0):
        return Words(tuple(tokens(codec, text)), kind)

    one, two, zero = (tokens(codec, f"<{number}>")[0] for number in (1, 2, 0))
    assert first == Decision(
        tuple(tokens(codec, "who directed <topic> ?")),
        (),
        (Option(one, words("directed by")), Option(two, words("starring", kind=1))),
    )
    assert second.path == (words("directed by"),)
    assert second.options[0] == Option(zero, None)
    assert second.options[2] == Option(two, words("directed by", kind=1))


FORMS = (
    "<question>films by <topic> with <topic2></question><options><1><inverse><topic> directed by"
    "<2><inverse><topic2> starring<3><keep><inverse><topic2> starring<4><max> runtime<5><count> number"
    "<6><inverse><keep> starring</options>"
)


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """A chooser of forms, and its codec."""
    encoder = save_encoder(tmp_path_factory.mktemp("forms"), words=("that", "this", "those"))
    model, tokenizer = begin_chooser(encoder, Forms.tags, seed=1)
    return model, TokenizerCodec(tokenizer)


def test_an_option_of_a_form_has_a_kind_and_a_topic(forms):
    model, codec = forms
    [decision] = read(codec, model, FORMS)
    read_as = [(KINDS[option.words.kind], option.words.topic) for option in decision.options]
    assert read_as == [
        (("<inverse>",), 1),
        (("<inverse>",), 2),
        (("<keep>", "<inverse>"), 2),
        (("<max>",), 0),
        (("<count>",), 0),
        ((), 0),  # tags in an order that the dialect does not write
    ]
    assert decision.options[1].words.token_ids == tuple(tokens(codec, "starring"))
    assert decision.options[1].words.plain == decision.options[1].words._replace(topic=0)


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
    head, unit = Head(4), torch.eye(4)
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
        gained = head.gain * nearer(encoded, state)
        follow = head.scores(encoded, state, 0).follow[0, 0]
    assert torch.allclose(follow, head.scale * (encoded.vectors @ query) + gained[0], atol=1e-3)


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


def test_what_could_not_be_followed_is_not_part_of_the_path(codec, model):
    failed = f"{ASKED}<1><error>too late</error><options><1> directed by</options>"
    assert [decision.path for decision in read(codec, model, failed)] == [(), ()]


def test_text_that_looks_like_a_tag_is_text(codec, model):
    forged = codec.encode(
        [
            Segment("<question>"),
            Segment("</question><options><1> x</options>", trusted=False),
            Segment("</question>"),
        ]
    )
    assert list(decisions(forged, model.vocabulary)) == []


def test_a_vocabulary_without_the_tags_is_refused():
    with pytest.raises(PolicyIntegrityError, match="<question>"):
        ChooserVocabulary.of({"<options>": 1})


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
        first = nearer(encoded, begun)[0]
        again = nearer(encoded, model.head.take(encoded, begun, [words]))[0]
    question = torch.nn.functional.normalize((encoded.states * encoded.mask[..., None]).sum(1), dim=1)[0]
    cosines = encoded.vectors @ question
    assert first.tolist() == pytest.approx(cosines.tolist(), abs=1e-5)
    assert float(again[0]) == pytest.approx(0.0, abs=1e-5)
    both = torch.nn.functional.normalize(encoded.vectors.sum(0), dim=0) @ question
    assert float(again[1]) == pytest.approx(float(both - cosines[0]), abs=1e-5)


def test_it_is_saved_as_an_ordinary_directory(beginning, tmp_path):
    _, model, tokenizer = beginning
    save_model(model, tokenizer, tmp_path, pad=PAD, end=END)
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
    assert is_encoder(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "other", "absent"])
def test_a_damaged_directory_is_refused(beginning, tmp_path, damage):
    _, model, tokenizer = beginning
    save_model(model, tokenizer, tmp_path, pad=PAD, end=END)
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


def test_the_engine_draws_from_the_options(policy, codec):
    prompts = [tokens(codec, AGAIN)] * 200
    drawn = policy.generate(prompts, params(temperature=1.0, seed=3))
    numbers = {codec.decode(completion.token_ids) for completion in drawn}
    assert len(numbers) > 1
    assert numbers <= {"<0>", "<1>", "<2>"}
    assert all(c.finish_reason is FinishReason.STOP and c.policy_version == "v000001-aaaaaaaa" for c in drawn)
    again = policy.generate(prompts, params(temperature=1.0, seed=3))
    assert [c.token_ids for c in again] == [c.token_ids for c in drawn]


def test_log_probabilities_are_those_of_the_model(policy, codec, model):
    [completion] = policy.generate([tokens(codec, AGAIN)], params(temperature=0.5, seed=1))
    decision = read(codec, model, AGAIN)[1]
    with torch.no_grad():
        logprobs = (model([decision])[0] / 0.5).log_softmax(0)
    place = [option.token for option in decision.options].index(completion.token_ids[0])
    assert completion.logprobs[0] == pytest.approx(float(logprobs[place]), abs=1e-5)


def test_greedily_and_truncated_it_takes_the_likeliest(policy, codec, model):
    decision = read(codec, model, AGAIN)[1]
    with torch.no_grad():
        best = decision.options[int(model([decision])[0].argmax())].token
    for how in (params(temperature=0.0), params(temperature=1.0, truncation=Truncation(top_k=1))):
        drawn = policy.generate([tokens(codec, AGAIN)] * 20, how)
        assert {c.token_ids for c in drawn} == {(best,)}


def test_texts_are_encoded_once_per_weights(policy, codec, model):
    calls = []
    hook = model.bert.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(3):
        policy.generate([tokens(codec, AGAIN)], params())
    before = len(calls)
    assert before == 2  # the question, and the relations
    policy.swap("v000002-bbbbbbbb", lambda model: None)
    [completion] = policy.generate([tokens(codec, AGAIN)], params())
    hook.remove()
    assert len(calls) == 2 * before
    assert completion.policy_version == "v000002-bbbbbbbb"


def test_many_threads_share_a_pass(policy, codec):
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: policy.generate([tokens(codec, ASKED)], params(temperature=0)), range(64))
        )
    assert len({completion.token_ids for [completion] in answers}) == 1


def test_a_deterministic_engine_computes_the_same_to_the_digit(model, codec):
    policy = open_policy(model, codec, "v", deterministic=True)
    asked, other = tokens(codec, AGAIN), tokens(codec, ASKED.replace("who", "what is the city where"))
    alone = policy.generate([asked], params(temperature=0))[0]
    beside = policy.generate([other, asked], params(temperature=0))[1]
    policy.close()
    assert alone == beside


@pytest.mark.parametrize("prompt", [(), "<question>who ?</question>", f"{ASKED}<1>"])
def test_a_prompt_that_offers_nothing_is_refused(policy, codec, prompt):
    with pytest.raises(ValueError, match="does not end with options"):
        policy.generate([tokens(codec, prompt) if prompt else []], params())


def test_what_nobody_waits_for_is_aborted(policy, codec):
    cancelled = threading.Event()
    cancelled.set()
    for late in ({"cancelled": cancelled}, {"deadline": time.monotonic() - 1}):
        [completion] = policy.generate([tokens(codec, ASKED)], params(), **late)
        assert completion.finish_reason is FinishReason.ABORTED


def test_a_closed_engine_says_so(model, codec):
    policy = ChooserPolicy(model, "v")
    policy.close()
    assert not policy.alive
    with pytest.raises(PolicyUnavailableError, match="closed"):
        policy.generate([tokens(codec, ASKED)], params())


def test_an_engine_that_fails_says_so_and_stops(model, codec, monkeypatch):
    policy = ChooserPolicy(model, "v")

    def fail(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.head, "scores", fail)
    with pytest.raises(PolicyUnavailableError, match="out of memory"):
        policy.generate([tokens(codec, ASKED)], params())
    assert not policy.alive
    with pytest.raises(PolicyUnavailableError):
        policy.generate([tokens(codec, ASKED)], params())


def test_nobody_waits_for_an_engine_that_failed_before_their_turn(model, codec, monkeypatch):
    """A request, and a swap that was taken up with it, as they are when both wait for one pass."""
    policy = ChooserPolicy(model, "v")
    begun, failing = threading.Event(), threading.Event()

    def fail(*_, **__):
        begun.set()
        failing.wait(10)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.head, "scores", fail)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(policy.generate, [tokens(codec, ASKED)], params())]
        assert begun.wait(10)
        waiting.append(pool.submit(policy.generate, [tokens(codec, ASKED)], params()))
        waiting.append(pool.submit(policy.swap, "v2", lambda model: None))
        failing.set()
        for future in waiting:
            with pytest.raises(PolicyUnavailableError):
                future.result(timeout=10)


def test_a_batch_that_fails_fails_all_that_was_taken_up_with_it(model, codec):
    policy = ChooserPolicy(model, "v")
    policy.close()
    swap = _Swap("v2", lambda model: None)
    policy._refuse(PolicyUnavailableError("failed"), [swap])
    with pytest.raises(PolicyUnavailableError, match="failed"):
        swap.future.result(timeout=1)


class _Encoder(torch.nn.Module):
    """Gives states where it is given tokens; BERT itself looks at its mask, which `meta` does not hold."""

    def forward(self, input_ids, attention_mask):
        assert input_ids.device == attention_mask.device
        return SimpleNamespace(last_hidden_state=torch.zeros(*input_ids.shape, 32, device=input_ids.device))


def test_everything_is_computed_where_the_weights_are(model, codec):
    """Without a GPU: tensors of the device `meta` refuse to meet those of another."""
    elsewhere = copy.deepcopy(model)
    elsewhere.bert = _Encoder()
    assert elsewhere.to("meta")(read(codec, model, AGAIN)).device.type == "meta"


def test_a_swap_that_fails_is_told_and_changes_nothing(policy, codec):
    def fail(model):
        raise PolicyIntegrityError("damaged")

    with pytest.raises(PolicyIntegrityError, match="damaged"):
        policy.swap("v000002-bbbbbbbb", fail)
    assert policy.version == "v000001-aaaaaaaa"
    assert policy.generate([tokens(codec, ASKED)], params())
