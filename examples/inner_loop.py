"""The built-in loop by hand, over the same `step` and `leaf` objects as `lockstep train`.

For a training script of your own there is `own_loop.py`.

A sketch: the forward pass, the loss and the order of things are yours; leaves, exchange and checkpoints are Lockstep's.
It runs as the program of a worker (see tests/test_own_loop.py) and ends on the digest of the built-in loop.
"""

from lockstep import mixing
from lockstep.worker import joined

with joined() as worker:
    replica, strategy = worker.replica, worker.strategy
    step = worker.begin()
    while step.index < worker.last:
        while not step.done:
            for leaf in step.missing():
                batch = strategy.batch(leaf)
                images, labels = replica.device.put(batch, worker.recipe.channels_last)
                contribution = replica.begin_leaf(leaf.seed)
                logits = replica.logits(images, leaf.step, batch.mix)
                loss = mixing.loss(logits, labels, batch.mix, worker.recipe.label_smoothing)
                loss.backward()
                replica.end_leaf(contribution, loss, logits, labels)
                step.hold(leaf, contribution)
            strategy.exchange(step)
        strategy.apply(step)
        step = step.next()
