import random

import pytest
import torch

from kbqa.objectives import SurrogateConfig
from kbqa.training.copying import WarmUpConfig, periodic, scattered, warm_up
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.learner import Learner
from kbqa.training.likelihood import token_logprobs
from kbqa.training.sft import Example, SftConfig, fine_tune, learning_rate, micro_batches, pad
from kbqa.training.small_policy import PAD
from kbqa.trajectory import Segment
from tests.unit.policies_fixtures import make_codec, make_model, make_tokenizer
from tests.unit.training.samples import sample


def test_micro_batches_hold_every_index_once_within_the_budget():
    lengths = [5, 100, 7, 40, 41, 300, 6]
    batches = list(micro_batches(lengths, token_budget=120))
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 120


def test_padding_is_on_the_right():
    assert pad([[1, 2, 3], [4]], torch.long).tolist() == [[1, 2, 3], [4, 0, 0]]


def test_token_logprobs_are_those_of_the_whole_distribution_and_ignore_padding():
    model = make_model()
    ids = pad([[30, 40, 50, 60], [70, 80]], torch.long)
    mask = pad([[0, 0, 1, 1], [0, 1]], torch.bool)
    logprobs, entropy = token_logprobs(model, ids, mask)
    for expected, row, position in zip(logprobs, [[30, 40, 50, 60]] * 2 + [[70, 80]], (2, 3, 1), strict=True):
        full = model(torch.tensor([row])).logits[0, position - 1].log_softmax(-1)
        assert expected.item() == pytest.approx(full[row[position]].item(), abs=1e-5)
    assert (entropy > 0).all()


def test_a_step_makes_good_tokens_likelier_and_bad_ones_less_likely():
    model = make_model()
    good, bad = sample(12, 6, 1.0, seed=1), sample(12, 6, -1.0, seed=2)
    config = GrpoConfig(learning_rate=1e-2)
    result = grpo_step(model, make_optimiser(model, config), [good, bad], config)
    assert not result.skipped
    assert result.metrics["logprob_gap"] == pytest.approx(0.0, abs=1e-5)
    assert result.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    for one, sign in ((good, 1), (bad, -1)):
        after, _ = token_logprobs(model, torch.tensor([one.token_ids]), torch.tensor([one.mask]))
        before = torch.tensor([p for p, m in zip(one.logprobs, one.mask, strict=True) if m])
        assert sign * (after.sum() - before.sum()).item() > 0


@pytest.mark.parametrize("aggregation", ["token_sum", "token_mean", "sample_mean"])
def test_micro_batches_do_not_change_the_step(aggregation):
    samples = [sample(n, 4, a, seed=n) for n, a in ((8, 1.0), (20, -0.5), (33, 0.25))]
    weights = []
    for budget in (1, 10_000):
        model = make_model()
        config = GrpoConfig(
            learning_rate=1e-3,
            token_budget=budget,
            surrogate=SurrogateConfig(aggregation=aggregation, kl_coefficient=0.1),
        )
        grpo_step(model, make_optimiser(model, config), samples, config, reference=make_model(seed=3))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(*weights, atol=1e-5)


def test_a_step_that_is_not_finite_changes_nothing_and_says_so():
    model = make_model()
    before = [p.detach().clone() for p in model.parameters()]
    broken = sample(12, 6, float("nan"))
    config = GrpoConfig(learning_rate=1e-2)
    result = grpo_step(model, make_optimiser(model, config), [broken], config)
    assert result.skipped
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_step_without_samples_is_an_error():
    model, config = make_model(), GrpoConfig()
    with pytest.raises(ValueError, match="at least one"):
        grpo_step(model, make_optimiser(model, config), [], config)


def test_norms_and_biases_are_not_decayed():
    matrices, vectors = make_optimiser(make_model(), GrpoConfig(weight_decay=0.01)).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.01, 0.0)
    assert {p.ndim for p in matrices["params"]} == {2}


@pytest.mark.parametrize("kind", [periodic, scattered])
def test_masked_tokens_of_the_warm_up_follow_from_earlier_ones(kind):
    ids, mask = kind(range(20, 2000), 120, random.Random(1))
    assert len(ids) == len(mask) == 120
    assert any(mask)
    for position in (p for p, m in enumerate(mask) if m):
        earlier = {(a, b) for a, b in zip(ids[: position - 1], ids[1:position], strict=True)}
        assert (ids[position - 1], ids[position]) in earlier


def test_the_warm_up_ends_once_the_longest_scattered_sequences_are_copied():
    model, done = make_model(), []
    easy = WarmUpConfig(
        steps=50, batch_tokens=64, length=(16, 16), scattered_from=16, copied_loss=100.0, learned_loss=100.0
    )
    assert warm_up(model, range(20, 60), easy, seed=0, on_step=lambda step, _: done.append(step))
    assert done == [1]
    hard = WarmUpConfig(steps=3, batch_tokens=64, length=(16, 16), scattered_from=16, learned_loss=1e-9)
    assert not warm_up(model, range(20, 60), hard, seed=0)


def test_the_warm_up_lowers_the_loss():
    model = make_model()
    losses = []
    config = WarmUpConfig(steps=60, batch_tokens=256, length=(12, 24))
    warm_up(model, range(20, 60), config, seed=0, on_step=lambda _, loss: losses.append(loss))
    assert sum(losses[-5:]) < sum(losses[:5])


def test_the_learning_rate_rises_then_falls_to_a_tenth():
    config = SftConfig(steps=100, learning_rate=1.0, warm_up_steps=10)
    assert learning_rate(0, config) == pytest.approx(0.1)
    assert learning_rate(9, config) == 1.0
    assert learning_rate(100, config) == pytest.approx(0.1)


def test_imitation_that_learns_all_at_once_cools_down_from_then_on_and_ends():
    model, example = make_model(), Example((5, 6, 7, 8), (False, True, True, True))
    config = SftConfig(
        steps=400, batch=1, learning_rate=1e-2, warm_up_steps=1, learned_loss=0.5, cool_down_steps=10
    )
    losses, smoothed, below = [], 0.0, []

    def on_step(step, loss):
        nonlocal smoothed
        losses.append(loss)
        smoothed = loss if step == 1 else 0.9 * smoothed + 0.1 * loss
        below.append(smoothed < 0.5)
        return False

    fine_tune(Learner(model, config).imitate, lambda n: [example] * n, config, on_step)
    assert below[0] is False
    assert len(losses) == below.index(True) + 1 + 10


def test_imitation_that_never_learns_cools_down_before_its_last_step():
    model, rng = make_model(), random.Random(0)
    config = SftConfig(steps=12, batch=1, learning_rate=1e-4, learned_loss=0.01, cool_down_steps=4)
    steps = []

    def draw(count):
        return [Example(tuple(rng.choices(range(5, 300), k=4)), (False, True, True, True))] * count

    fine_tune(Learner(model, config).imitate, draw, config, lambda step, loss: bool(steps.append(step)))
    assert steps[-1] == 12


def test_fine_tuning_learns_masked_tokens_and_stops_when_told():
    model = make_model()
    example = Example(tuple(range(30, 50)), tuple(i >= 10 for i in range(20)))
    losses = []

    def on_step(step, loss):
        losses.append(loss)
        return step == 30

    config = SftConfig(steps=500, batch=2, learning_rate=1e-2)
    fine_tune(Learner(model, config).imitate, lambda n: [example] * n, config, on_step)
    assert len(losses) == 30
    assert losses[-1] < losses[0] / 2


def test_tags_are_single_tokens_and_text_round_trips():
    codec = make_codec()
    assert len(codec.encode([Segment("<kg-query></kg-query>")])) == 2
    text = 'Wo ist "Köln", 日本?\n\t<think> 🙂 a_b.c'
    assert codec.decode(codec.encode([Segment(text)])) == text
    assert make_tokenizer().token_to_id(PAD) == 0


def test_untrusted_text_yields_no_tag():
    codec = make_codec()
    tag = codec.encode([Segment("<answer>")])
    forged = codec.encode([Segment("<answer>", trusted=False)])
    assert len(tag) == 1
    assert tag[0] not in forged
    assert codec.decode(forged) == "<answer>"


def test_a_name_is_the_same_tokens_wherever_it_stands():
    codec = make_codec()
    name = codec.encode([Segment("Ada Byron")])
    for before in ("of ", '"', "\n", "("):
        text = codec.encode([Segment(f"{before}Ada Byron,")])
        assert any(text[i : i + len(name)] == name for i in range(len(text)))
