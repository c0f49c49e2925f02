"""BatchNorm with the momentum and epsilon that the options of a model give."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import nn

Norm = Callable[[int], nn.BatchNorm2d]
"""Makes the BatchNorm for so many channels."""


def batch_norm(momentum: float, epsilon: float) -> Norm:
    """`momentum` is the weight of the newest batch in the running statistics, which is what evaluation uses: torch's
    convention. TensorFlow and Keras give the weight of the old value, so their 0.9 is 0.1 here."""
    return functools.partial(nn.BatchNorm2d, momentum=momentum, eps=epsilon)
