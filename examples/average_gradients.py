"""Ray actors fit y = 0.1 x + 0.3, each on its own points; one network here takes the steps, with the mean gradient.

    python examples/average_gradients.py

Gradients are taken in the actors and applied here, so there is one optimizer, and its state (the momentum) is here too.
The same with weights is in average_weights.py; what `lockstep train` does instead of both is in docs/strategies.md.
"""

import numpy as np
import ray
import torch
from torch import nn

from lockstep import weights

NUM_ACTORS = 2
NUM_ITERATIONS = 201


class Network:
    """A line with two weights, and points that only this actor has."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.x = torch.rand(100, 1)
        self.y = 0.1 * self.x + 0.3
        self.model = nn.Linear(1, 1)

    def gradients(self, now: weights.Weights) -> weights.Weights:
        """The gradient of the loss on this actor's points, at these weights."""
        weights.set(self.model, now)
        self.model.zero_grad()
        nn.functional.mse_loss(self.model(self.x), self.y).backward()
        return weights.get_gradients(self.model)


ray.init()
actors = [ray.remote(Network).remote(seed) for seed in range(NUM_ACTORS)]
torch.manual_seed(0)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.8)
for iteration in range(NUM_ITERATIONS):
    now = ray.put(weights.get(model))
    results = ray.get([actor.gradients.remote(now) for actor in actors])
    mean = {name: np.mean([result[name] for result in results], axis=0) for name in results[0]}
    weights.apply_gradients(model, mean, optimizer)
    if iteration % 50 == 0:
        print(f"iteration {iteration}: w = {model.weight.item():.4f}, b = {model.bias.item():.4f}")
