"""What is drawn for mixup and cutmix."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep import philox
from lockstep.config import Data
from lockstep.data.mix import Mix, box_of, draw, symmetric_beta


def weights(alpha: float, count: int = 4000) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    words = philox.words(0, 99, 0, np.arange(count), num_words=2)
    return np.array([symmetric_beta(alpha, int(a), int(b)) for a, b in words])


# Distribution functions of Beta(alpha, alpha) that can be written down.
KNOWN = {
    0.5: lambda x: 2 / math.pi * np.arcsin(np.sqrt(x)),
    1.0: lambda x: x,
    2.0: lambda x: x**2 * (3 - 2 * x),
    3.0: lambda x: x**3 * (10 - 15 * x + 6 * x**2),
}


@pytest.mark.parametrize("alpha", KNOWN)
def test_weights_have_a_beta_distribution(alpha: float) -> None:
    """The largest distance from the true distribution function, as Kolmogorov and Smirnov would have it."""
    found = np.sort(weights(alpha))
    distance = abs(KNOWN[alpha](found) - (np.arange(4000) + 0.5) / 4000).max()
    assert distance < 1.63 / 4000**0.5


@pytest.mark.parametrize("alpha", [1e-4, 0.1, 0.2, 0.8, 8.0, 1e6])
def test_weights_have_the_variance_of_their_alpha(alpha: float) -> None:
    found = weights(alpha)
    assert found.min() >= 0
    assert found.max() <= 1
    assert abs(found.mean() - 0.5) < 0.03
    assert abs(found.std() - 0.5 / (2 * alpha + 1) ** 0.5) < 0.01
    assert (found * 65536 % 1 == 0).all()


@pytest.mark.parametrize("words", [(0, 0), (0, 2**32 - 1), (2**32 - 1, 2**30), (0, 2**30), (2**32 - 1, 0)])
def test_extreme_words_give_a_weight_too(words: tuple[int, int]) -> None:
    assert all(0 <= symmetric_beta(alpha, *words) <= 1 for alpha in (1e-9, 0.2, 1.0, 1e9))


def test_boxes_are_cut_off_at_the_border() -> None:
    assert box_of(0.75, 16, 20, 32, 40) == (8, 24, 10, 30)
    assert box_of(0.75, 0, 39, 32, 40) == (0, 8, 29, 40)
    assert box_of(1.0, 5, 5, 32, 40) == (5, 5, 5, 5)
    assert box_of(0.0, 16, 20, 32, 40) == (0, 32, 0, 40)


def test_a_mix_depends_on_seed_step_and_leaf() -> None:
    data = Data(mixup=1.0)
    first = draw(data, 0, 5, 2, 32, 32)
    assert first == draw(data, 0, 5, 2, 32, 32)
    assert first not in [draw(data, 1, 5, 2, 32, 32), draw(data, 0, 6, 2, 32, 32), draw(data, 0, 5, 3, 32, 32)]
    assert draw(Data(), 0, 5, 2, 32, 32) is None


def test_the_weight_of_cutmix_is_what_is_left_of_the_image() -> None:
    for step in range(200):
        mix = draw(Data(cutmix=1.0), 0, step, 0, 32, 48)
        assert mix is not None
        assert mix.box is not None
        top, bottom, left, right = mix.box
        assert mix.weight == 1 - (bottom - top) * (right - left) / (32 * 48)


def test_with_both_kinds_half_of_the_leaves_have_each() -> None:
    both, only = Data(mixup=0.2, cutmix=1.0), Data(mixup=0.2)
    mixes = [draw(both, 0, step, 1, 32, 32) for step in range(1000)]
    blended = [step for step, mix in enumerate(mixes) if mix is not None and mix.box is None]
    assert 430 < len(blended) < 570
    assert all(mixes[step] == draw(only, 0, step, 1, 32, 32) for step in blended)
    assert all(isinstance(mix, Mix) for mix in mixes)
