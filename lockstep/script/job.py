"""`lockstep.job`: a training loop of one's own, on any number of workers.

    job = lockstep.job(model=model, optimizer=optimizer, scheduler=scheduler, seed=0)
    for step in job.batches(loader, epochs=10):
        while not step.done:
            for images, labels in step.leaves():
                step.backward(F.cross_entropy(model(images), labels))
            step.exchange()
        optimizer.step()
        scheduler.step()

The same script runs as `python script.py`, alone, and as `lockstep launch --workers 4 script.py`, to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from lockstep import generators
from lockstep.data.order import Samples, steps_of_epochs
from lockstep.device import Device
from lockstep.errors import UserError
from lockstep.replica import Given
from lockstep.script import checks, keeping, session, training
from lockstep.script.evaluation import Evaluation, Score
from lockstep.script.guard import Guard
from lockstep.script.loader import Reader, take_apart
from lockstep.script.step import ScriptStep
from lockstep.script.training import Sizes, Training, probe
from lockstep.step import Leaf
from lockstep.worker import between_steps, come_forward


def job(
    *, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0, threads: int = 1, **also: Any
) -> ScriptJob:
    """Name the state that must survive: the model, its optimizer, and whatever else has a `state_dict` (a scheduler) or
    is a dict that the script changes in place. `seed` is that of the order of samples and of what leaves draw;
    `threads` compute one leaf.

    A line is found from points on it, as in any script; here by one process, and by any number of them under
    `lockstep launch`:

    >>> import lockstep, torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> x = torch.linspace(-1, 1, 32).reshape(-1, 1)
    >>> loader = DataLoader(TensorDataset(x, 0.1 * x + 0.3), batch_size=8, shuffle=True)
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> job = lockstep.job(model=model, optimizer=optimizer, seed=0)
    >>> for step in job.batches(loader, epochs=10):
    ...     while not step.done:
    ...         for inputs, targets in step.leaves():
    ...             step.backward(torch.nn.functional.mse_loss(model(inputs), targets))
    ...         step.exchange()
    ...     optimizer.step()
    >>> round(model.weight.item(), 2), round(model.bias.item(), 2)
    (0.1, 0.3)
    """
    return ScriptJob(model, optimizer, seed, threads, also)


class ScriptJob:
    """What `lockstep.job` returns. Here `job` and `loader` are those of its example:

    >>> def score(inputs, targets):
    ...     return {"loss": torch.nn.functional.mse_loss(model(inputs), targets, reduction="sum")}
    >>> found = job.evaluate(loader, score)
    >>> found["examples"], round(found["loss"], 3)
    (32, 0.0)
    >>> job.say("the line is found")
    the line is found
    >>> job.is_first, len(job.digest())
    (True, 64)
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, threads: int, also: dict[str, Any]
    ) -> None:
        checks.check_parts(model, optimizer)
        self._model = model
        self._optimizer = optimizer
        self._seed = seed
        self._threads = threads
        self._kept: dict[str, Any] = {}
        self._readers: dict[int, tuple[Any, Reader]] = {}
        """By the identity of their loaders, which are held so that they keep it."""
        self._guard = Guard()
        self._update = ExitStack()
        """The span of an update, while there is one."""
        optimizer.register_step_pre_hook(self._begin_update)
        optimizer.register_step_post_hook(lambda *_: self._update.close())
        self._training: Training | None = None
        self._step: ScriptStep | None = None
        """The step that the script is in."""
        self._evaluated = -1
        self._device = Device(next(model.parameters()).device.type, threads)
        self.keep(**also)

    def keep(self, **also: Any) -> Any:
        """Name more that must survive, such as a scheduler that needs to know the number of steps. Returns the object
        if it is one."""
        if self._training is not None:
            raise UserError("job.keep must be called before the loop begins")
        for name, one in also.items():
            keeping.check(name, one)
            if isinstance(one, torch.optim.Optimizer):
                one.register_step_pre_hook(lambda *_: self._guard.check_update())
        self._kept |= also
        return next(iter(also.values())) if len(also) == 1 else None

    def batches(
        self, loader: Any, *, epochs: float | None = None, steps: int | None = None, leaves: int = 4
    ) -> Batches:
        """The steps of a training over the data of a loader, whose batch size is the global one: each step's batch is
        cut into so many leaves, which workers share."""
        if (epochs is None) == (steps is None):
            raise UserError("give job.batches either epochs or steps")
        reader = self._reader(loader, trains=True)
        size, batch = len(reader.parts), reader.parts.batch_size
        if steps is None:
            assert epochs is not None
            steps = steps_of_epochs(epochs, size, batch)
        return Batches(self, reader, Sizes(size, batch, leaves, steps, self._seed, self._threads))

    def evaluate(self, loader: Any, function: Score) -> dict[str, Any]:
        """Evaluate every example of a loader's data exactly once, shared by the workers. `function` is called with the
        batches and returns sums over their examples by name; the result has their means, and `examples`."""
        evaluation = Evaluation(self._model, self._reader(loader, trains=False), function, self._seed)
        with generators.kept():
            return self._evaluate(evaluation)

    def _evaluate(self, evaluation: Evaluation) -> dict[str, Any]:
        training, step = self._training, self._step
        if training is None or training.worker is None or step is None:
            return evaluation.whole()
        done = step.index + step.done
        training.worker.reporter.at(done, None)
        with training.replica.spans("evaluate"):
            if self._evaluated == done:  # the second one in a step is not the supervisor's
                return evaluation.whole()
            self._evaluated = done
            return evaluation.shared(training.worker, done)

    def say(self, text: str) -> None:
        """A line for the user, once, whatever the number of workers."""
        if not isinstance(session.current, session.Session):
            print(text, flush=True)
        elif self.is_first:
            session.current.membership.send({"type": "note", "text": text})

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files of the script's own."""
        current = session.current
        if self._training is not None:
            return self._training.membership.is_first
        # Before the loop nobody is a member of anything.
        return current is None or (isinstance(current, session.Session) and current.membership.id == 0)

    def digest(self) -> str:
        """The SHA-256 of weights and buffers, as `lockstep digest RUN` prints it."""
        return training.digest_of(self._model)

    def _begin_update(self, *_: Any) -> None:
        self._guard.check_update()
        if self._training is not None:
            self._update.enter_context(self._training.replica.spans("optimizer"))

    def _reader(self, loader: Any, trains: bool) -> Reader:
        if id(loader) not in self._readers:
            self._readers[id(loader)] = loader, Reader(take_apart(loader, trains), self._seed)
        return self._readers[id(loader)][1]

    def _begin(self, sizes: Sizes, reader: Reader) -> Training:
        if self._training is not None:
            raise UserError("a job has one loop over its batches: make it longer, or write a second script")
        if isinstance(session.current, session.Describing):
            checks.check_pure(reader.parts, self._seed)
        given = Given(
            self._model,
            self._optimizer,
            kept=lambda: keeping.pack(self._kept, self._optimizer),
            restore=lambda named: keeping.unpack(named, self._kept, self._optimizer),
        )
        self._training = training.begin(sizes, given, self._device)
        return self._training


class Batches:
    """The steps of a training: to be iterated over, once.

    >>> len(job.batches(loader, epochs=10))
    40
    """

    def __init__(self, job: ScriptJob, reader: Reader, sizes: Sizes) -> None:
        self._job = job
        self._reader = reader
        self._sizes = sizes

    def __len__(self) -> int:
        return self._sizes.steps

    def __iter__(self) -> Iterator[ScriptStep]:
        """A run that is resumed, or a worker that joins, begins in the middle."""
        job, training = self._job, self._job._begin(self._sizes, self._reader)
        self._enter(training)
        while training.step.index < training.last:
            job._step = ScriptStep(training, job._guard, lambda leaf: self._batch(training, leaf))
            yield job._step
            job._step._end()
            if training.worker is not None:
                training.worker.reporter.count(training.step)
            training.step = training.step.next()
            if training.worker is not None:
                between_steps(training.worker, training.step)
        job._step = None
        if isinstance(session.current, session.Session):
            session.current.digest = training.replica.digest()

    def _enter(self, training: Training) -> None:
        """Become a member of the job, if there is one."""
        worker, current = training.worker, session.current
        if worker is None or not isinstance(current, session.Session):
            return
        found = probe() if current.welcome["trains"] else None
        current.store = come_forward(worker, current.welcome, current.line, found)
        training.step = worker.begin()
        between_steps(worker, training.step)

    def _batch(self, training: Training, leaf: Leaf) -> Any:
        """A leaf's samples, usually read while the leaf before it was computed."""
        strategy = training.strategy

        def samples(key: tuple[int, int]) -> Samples:
            return strategy.samples(*key)

        return self._reader.take((leaf.step, leaf.index), samples, strategy.upcoming(leaf))
