"""Learning of a policy that chooses: likelihoods of what it drew, and updates from them."""

from __future__ import annotations

import random

import pytest
import torch

from kbqa.policies.base import SamplingParams, Truncation
from kbqa.policies.chooser.beginning import begin_chooser
from kbqa.policies.chooser.policy import ChooserPolicy
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.chooser import ChoosingProtocol as Dialect
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.learner import Learner
from kbqa.training.likelihood import likelihood_of
from kbqa.training.packing import pack
from kbqa.training.sft import Example, SftConfig, fine_tune
from kbqa.trajectory import Segment, TrainingSample
from tests.unit.encoders import save_encoder

WHOLE = Truncation()
LISTINGS = (
    "<question>who directed <topic> ?</question><options><1> directed by<2><inverse> starring</options>",
    "<options><0> answer<1> born<2><inverse> directed by<3> country</options>",
    "<options><0> answer</options>",
)


@pytest.fixture
def chooser(tmp_path):
    model, tokenizer = begin_chooser(save_encoder(tmp_path), Dialect.tags, seed=1)
    return model, TokenizerCodec(tokenizer)


def played(model, codec, count, *, temperature=1.0, truncation=WHOLE, questions=("who",)):
    """Episodes of three turns, as an engine draws them: token ids, mask, behaviour log-probabilities."""
    policy = ChooserPolicy(model, "v000001-aaaaaaaa")
    rng, episodes = random.Random(0), []
    for number in range(count):
        asked = rng.choice(questions)
        ids, mask, logprobs = [], [], []
        for listing in LISTINGS:
            read = codec.encode([Segment(listing.replace("who", asked))])
            ids += read
            params = SamplingParams(1, 1024, temperature, seed=number, truncation=truncation)
            [completion] = policy.generate([ids], params)
            ids += completion.token_ids
            mask += [False] * len(read) + [True]
            logprobs += [0.0] * len(read) + list(completion.logprobs)
        episodes.append((tuple(ids), tuple(mask), tuple(logprobs)))
    policy.close()
    return episodes


@pytest.mark.parametrize(("temperature", "truncation"), [(1.0, WHOLE), (0.7, Truncation(top_k=2))])
def test_a_policy_that_has_not_changed_has_the_ratio_one(chooser, temperature, truncation):
    model, codec = chooser
    episodes = played(
        model, codec, 12, temperature=temperature, truncation=truncation, questions=("who", "what city")
    )
    for row in pack([e[0] for e in episodes], [e[1] for e in episodes], 10_000):
        logprobs, entropy = likelihood_of(model)(row, temperature=temperature, truncation=truncation)
        told = [value for i in row.members for value, m in zip(*episodes[i][:0:-1], strict=True) if m]
        assert logprobs.tolist() == pytest.approx(told, abs=1e-5)
        assert (entropy >= 0).all()


def test_rows_do_not_change_the_result(chooser):
    model, codec = chooser
    episodes = played(model, codec, 8)

    def logprobs(budget):
        found = {}
        for row in pack([e[0] for e in episodes], [e[1] for e in episodes], budget):
            values = iter(likelihood_of(model)(row)[0].tolist())
            found |= {index: [next(values) for _ in range(3)] for index in row.members}
        return [found[index] for index in range(len(episodes))]

    assert len(list(pack([e[0] for e in episodes], [e[1] for e in episodes], 30))) > 1
    for short, long in zip(logprobs(30), logprobs(10_000), strict=True):
        assert short == pytest.approx(long, abs=1e-5)


def test_a_decision_of_many_episodes_is_computed_once(chooser):
    model, codec = chooser
    episodes = played(model, codec, 16)
    [row] = pack([e[0] for e in episodes], [e[1] for e in episodes], 10_000)
    asked = []
    hook = model.register_forward_pre_hook(lambda _, arguments: asked.append(arguments[0]))
    likelihood_of(model)(row)
    hook.remove()
    [decisions] = asked
    assert len(decisions) == len(set(decisions)) < len(row.targets)


def test_what_is_rewarded_becomes_likelier(chooser):
    model, codec = chooser
    wanted = codec.encode([Segment("<2>")])[0]
    config = GrpoConfig(learning_rate=3e-3, token_budget=10_000)
    optimiser = make_optimiser(model, config)

    def share():
        return sum(episode[0][episode[1].index(True)] == wanted for episode in played(model, codec, 60)) / 60

    before = share()
    for _ in range(15):
        samples = []
        for ids, mask, logprobs in played(model, codec, 8):
            first = mask.index(True)
            advantage = 1.0 if ids[first] == wanted else -1.0
            only = tuple(position == first for position in range(len(ids)))
            samples.append(TrainingSample(ids, only, logprobs, tuple(advantage * here for here in only)))
        result = grpo_step(model, optimiser, samples, config)
        assert not result.skipped
        assert result.metrics["logprob_gap"] < 1e-5
    assert share() > max(0.9, before)


def test_embeddings_stay_as_they_were(chooser):
    model, _ = chooser
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not any("embeddings" in name for name in trained)
    assert any(name.startswith("bert.encoder") for name in trained)
    assert any(name.startswith("head") for name in trained)


def test_choices_can_be_imitated(chooser):
    """Supervised: the likelihood of what was shown rises, and each text is encoded once per step."""
    model, codec = chooser
    wanted = ("<2>", "<1>", "<0>")
    ids, mask = [], []
    for listing, choice in zip(LISTINGS, wanted, strict=True):
        read, taken = codec.encode([Segment(listing)]), codec.encode([Segment(choice)])
        ids += [*read, *taken]
        mask += [False] * len(read) + [True]
    shown = Example(tuple(ids), tuple(mask))
    losses = []

    def on_step(_, loss):
        losses.append(loss)
        return False

    config = SftConfig(steps=30, learning_rate=3e-3, warm_up_steps=0, token_budget=10_000)
    fine_tune(Learner(model, config).imitate, lambda count: [shown] * count, config, on_step)
    [row] = pack([shown.token_ids], [shown.mask], 10_000)
    with torch.no_grad():
        logprobs, _ = likelihood_of(model)(row)
    # The last choice is the only option, so that its likelihood is 1 from the beginning.
    assert losses[0] > 0.2
    assert losses[-1] < 0.1 * losses[0]
    assert (logprobs.exp() > 0.9).all()
