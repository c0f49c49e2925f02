"""Ray actors fit y = 0.1 x + 0.3, each on points of its own; after every step their weights are averaged.

    python examples/average_weights.py

Weights travel as numpy arrays, through Ray's object store: `ray.put` stores the average once for all actors. The same
with gradients is in average_gradients.py; what `lockstep train` does instead of both is in docs/strategies.md.
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
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def get(self) -> weights.Weights:
        return weights.get(self.model)

    def step(self, average: weights.Weights) -> weights.Weights:
        """One step from the shared weights; the weights it leads to."""
        weights.set(self.model, average)
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(self.x), self.y).backward()
        self.optimizer.step()
        return weights.get(self.model)


ray.init()
actors = [ray.remote(Network).remote(seed) for seed in range(NUM_ACTORS)]
average: weights.Weights = ray.get(actors[0].get.remote())
for iteration in range(NUM_ITERATIONS):
    shared = ray.put(average)
    results = ray.get([actor.step.remote(shared) for actor in actors])
    average = {name: np.mean([result[name] for result in results], axis=0) for name in average}
    if iteration % 50 == 0:
        print(f"iteration {iteration}: w = {average['weight'].item():.4f}, b = {average['bias'].item():.4f}")
