import pytest
import torch

from kbqa.policies.probe import Probe
from kbqa.training.likelihood import token_logprobs
from kbqa.training.probing import take_probe
from tests.unit.policies_fixtures import make_model


def test_a_probe_is_the_greedy_continuation_and_how_likely_the_model_finds_it():
    model = make_model().train()
    probe = take_probe(model, [30, 31, 32])
    assert model.training
    assert probe.token_ids[:3] == (30, 31, 32)
    ids = torch.tensor([probe.token_ids])
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, 3:] = True
    with torch.inference_mode():
        assert token_logprobs(model, ids, mask)[0].tolist() == pytest.approx(probe.logprobs, abs=1e-5)
        greedy = model(ids).logits[0, 2:-1].argmax(-1)
    assert tuple(greedy.tolist()) == probe.token_ids[3:]


def test_a_gap_is_the_mean_absolute_difference():
    probe = Probe((1, 2, 3), (-1.0, -2.0))
    assert probe.gap([-1.5, -1.9]) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="argument"):
        probe.gap([-1.0])
