import pytest

from kbqa.training.learning_rate import LearningRate


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (LearningRate(1.0), [1.0, 1.0, 1.0, 1.0]),
        (LearningRate(1.0, warm_up_steps=2), [0.5, 1.0, 1.0, 1.0]),
        (LearningRate(1.0, warm_up_share=0.5), [0.5, 1.0, 1.0, 1.0]),
        (LearningRate(1.0, "cosine"), [1.0, 0.8535534, 0.5, 0.1464466]),
        (LearningRate(1.0, "cosine", warm_up_steps=2, floor=0.2), [0.5, 1.0, 1.0, 0.6]),
    ],
)
def test_the_rate_of_each_of_four_steps(rate, expected):
    assert [rate.at(step, of=4) for step in range(4)] == pytest.approx(expected)


def test_a_cosine_ends_at_its_floor_and_stays_there():
    rate = LearningRate(2.0, "cosine", floor=0.1)
    assert rate.at(10, of=10) == rate.at(15, of=10) == pytest.approx(0.2)


def test_kbqa_r1s_rate_rises_over_three_tenths_of_its_steps():
    rate = LearningRate(1e-6, warm_up_share=0.3)
    assert rate.at(0, of=173) == pytest.approx(1e-6 / 52)
    assert rate.at(50, of=173) < rate.at(51, of=173) == rate.at(172, of=173) == 1e-6
