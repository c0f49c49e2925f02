"""A training loop of one's own, over the same `step` and `leaf` objects as `lockstep train`.

A sketch: the forward pass, the loss and the order of things are yours; leaves, exchange and checkpoints are Lockstep's.
It runs as the program of a worker (see tests/test_own_loop.py) and ends on the digest of the built-in loop.
"""

import torch.nn.functional as F

from lockstep.worker import joined

with joined() as worker:
    replica, strategy = worker.replica, worker.strategy
    step = worker.begin()
    while step.index < worker.last:
        while not step.done:
            for leaf in step.missing():
                images, labels = replica.device.put(strategy.batch(leaf), worker.recipe.channels_last)
                contribution = replica.begin_leaf(leaf.seed)
                logits = replica.logits(images, leaf.step)
                loss = F.cross_entropy(logits, labels)
                loss.backward()
                replica.end_leaf(contribution, loss, logits, labels)
                step.hold(leaf, contribution)
            strategy.exchange(step)
        strategy.apply(step)
        step = step.next()
