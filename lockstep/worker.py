"""The worker: `python -m lockstep.worker`. Set-up, then THE LOOP (`train`).

An engine starts it as a command; the supervisor's address and token are in its environment, the configuration comes
over the control connection, so it needs no file of the run but the checkpoint it resumes from.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lockstep import checkpoint, injection, provenance, strategies
from lockstep.config import Recipe
from lockstep.configfile import from_plain
from lockstep.data import defects, open_dataset
from lockstep.data.source import Dataset
from lockstep.device import Device
from lockstep.enlist import enlist
from lockstep.errors import JobError, UserError, no_finite_loss
from lockstep.evaluate import LeafResult, announce, evaluate_leaf
from lockstep.evaluate import num_leaves as num_evaluation_leaves
from lockstep.exchange import group
from lockstep.generation import Generation
from lockstep.line import Line
from lockstep.loggers import show_pictures
from lockstep.membership import Membership
from lockstep.pictures import Pictures
from lockstep.reach import watch_peers
from lockstep.replica import Replica
from lockstep.reporter import Reporter
from lockstep.step import Step
from lockstep.strategies.synchronous import Synchronous
from lockstep.verifier import Verifier
from lockstep.writer import Writer

LAST_WRITE_SECONDS = 4.0
"""How long a process that is told to end waits for a checkpoint that is being written; then it would be killed."""
NAMING_SECONDS = 5.0
"""How long a worker waits for the one whose leaf has no finite loss to say so."""


@dataclass
class Worker:
    """Everything that the loop uses."""

    recipe: Recipe
    dataset: Dataset
    replica: Replica
    strategy: Synchronous
    membership: Membership
    reporter: Reporter
    writer: Writer
    first: int
    """Index of the first step: 0, or that of the checkpoint."""
    last: int
    """The run stops exactly when so many steps are done."""
    step: Step
    """The step to begin with, unless this worker joins a running job."""
    verifier: Verifier
    pictures: Pictures
    evaluated: int = -1
    """The last step that was evaluated; -1 for none."""
    best: dict[str, Any] | None = None
    is_observed: bool = False
    """Whether a process beside the workers evaluates: then they only write what it looks at, and do the last step."""
    start_note: str | None = None
    """What the user is to know of the weights from a file."""
    counts_confusion: bool = False
    """Whether evaluations also count which class was taken for which; not while training, to keep messages small."""

    def begin(self) -> Step:
        """Wait for a generation; the first step that this worker takes part in."""
        self.strategy.on_copy = self.go_on_from_copy
        if self.strategy.begin(self.step):
            self.first = self.step.index
        self.adopt_scores()
        if self.start_note is not None and self.membership.is_first:
            self.membership.send({"type": "note", "text": self.start_note})
        self.verifier.begin(self.step)
        self.reporter.begin()
        return self.step

    def go_on_from_copy(self) -> None:
        """The state is that of others now, who have reported what was before."""
        self.adopt_scores()
        self.reporter.restart()

    def adopt_scores(self) -> None:
        """What the generation knows of evaluations: the run may have gone on, or back, since this worker started."""
        generation = self.membership.current
        self.evaluated, self.best = generation.evaluated, generation.best


def train(worker: Worker) -> None:
    """THE LOOP."""
    strategy = worker.strategy
    step = worker.begin()
    worker.pictures.show_samples(step)
    between_steps(worker, step)
    while step.index < worker.last:
        while not step.done:
            for leaf in step.missing():
                worker.reporter.at(step.index, leaf.index)
                step.hold(leaf, strategy.contribution(leaf))
            if strategy.exchange(step) == "copied":  # too far behind: the state, and the step, are those of the others
                break
        else:
            check_reduced(worker.membership, worker.replica, step)
            strategy.apply(step)
            worker.reporter.count(step)
            step = step.next()
        between_steps(worker, step)


def between_steps(worker: Worker, step: Step) -> None:
    """What is due when `step.index` steps are done: an evaluation, a checkpoint, a row of metrics."""
    worker.reporter.at(step.index, None)
    is_first = worker.membership.is_first
    if is_first:
        worker.reporter.resend()
    worker.reporter.report(step, is_first, at_end=step.index == worker.last)
    evaluates = evaluation_due(worker, step)
    if evaluates:
        evaluate(worker, step)
    worker.pictures.show_histograms(step, evaluates)
    if worker.verifier.is_due(step) and not worker.verifier.verify(step):
        worker.writer.forget()
        worker.adopt_scores()
        worker.reporter.begin()
    if worker.membership.is_first:
        save_if_due(worker, step)
    worker.reporter.begin_step()


def evaluation_due(worker: Worker, step: Step) -> bool:
    if worker.recipe.script is not None:  # which evaluates when it wants to
        return False
    planned = step.index == worker.last or (is_to_be_evaluated(worker, step) and not worker.is_observed)
    return planned and worker.evaluated < step.index


def is_to_be_evaluated(worker: Worker, step: Step) -> bool:
    return step.index > 0 and step.is_due(worker.recipe.evaluation.every_steps)


def evaluate(worker: Worker, step: Step) -> None:
    """Evaluate my part of the test set, then wait for the figures of the whole. A new generation shares it out anew."""
    membership, done = worker.membership, step.index
    with worker.replica.spans("evaluate"):
        while done not in membership.evaluations:
            generation = membership.settle()
            if generation.evaluated >= done:
                break
            worker.strategy.enter(step)
            evaluate_share(worker, step, generation)
            worker.reporter.at(done, None)
            membership.wait(lambda now=generation: done in membership.evaluations or membership.has_left(now))  # type: ignore[misc]
    worker.evaluated = done
    worker.best = membership.evaluations.pop(done, {"best": membership.current.best})["best"]


def evaluate_share(worker: Worker, step: Step, generation: Generation) -> None:
    """The leaves of the test set that are mine in this generation and not yet known to the supervisor."""
    config, membership, done = worker.recipe.evaluation, worker.membership, step.index
    leaves = range(num_evaluation_leaves(len(worker.dataset.test), config))
    known = generation.evaluated_leaves if generation.step == done else ()
    mine = leaves[generation.rank(membership.id) :: len(generation)]
    for at, leaf in enumerate(mine):
        if membership.has_left(generation):
            return
        if leaf not in known:
            worker.reporter.at(done, leaf)
            announce([one for one in mine[at:] if one not in known], worker.dataset.test, config)
            result = evaluate_leaf(worker.replica, worker.dataset.test, config, leaf, worker.counts_confusion)
            membership.send({"type": "evaluation", "step": done, "leaf": leaf, **message_of(result)})
        if membership.is_first and membership.checkpoint_wanted:
            save_if_due(worker, step)


def message_of(result: LeafResult) -> dict[str, Any]:
    """What the supervisor is told of a leaf; hits, a metric and a confusion table only where there are."""
    return {key: value for key, value in vars(result).items() if value not in ((), None)}


def save_if_due(worker: Worker, step: Step) -> None:
    """Take a snapshot when a checkpoint is due; a thread writes it while training goes on."""
    membership, done = worker.membership, step.index
    with membership.changed:
        wanted, membership.checkpoint_wanted = membership.checkpoint_wanted, None
    steps_per_epoch = len(worker.dataset.train) / worker.recipe.global_batch
    planned = done == worker.last or checkpoint.is_due(worker.recipe.checkpoints, done, steps_per_epoch, step.rounds)
    planned = planned or (worker.is_observed and is_to_be_evaluated(worker, step))
    if (planned and done > worker.first) or wanted:
        with worker.replica.spans("checkpoint"):
            worker.writer.save(take_snapshot(worker, done), wanted, membership.current.number)


def take_snapshot(worker: Worker, done: int) -> checkpoint.Snapshot:
    rows = worker.reporter.rows_since(worker.writer.written)
    return checkpoint.Snapshot(done, worker.strategy.snapshot(), worker.best, worker.evaluated, rows)


def check_reduced(membership: Membership, replica: Replica, step: Step) -> None:
    """Stop before a loss that is not a number reaches the weights; check integer buffers once."""
    if not math.isfinite(step.reduced.counts[0].item()):
        bad = [leaf for leaf, loss in sorted(step.losses.items()) if not math.isfinite(loss.item())]
        if not bad:  # the worker that computed the leaf names it
            membership.wait(lambda: False, seconds=NAMING_SECONDS)
        raise no_finite_loss(step.name, bad[0] if bad else None)
    if step.sample is not None:
        replica.check_integers(step.sample, step.reduced)


def set_up(welcome: dict[str, Any], membership: Membership, line: Line) -> Worker:
    """Build everything from the supervisor's welcome."""
    recipe, _ = from_plain(welcome["config"], "the supervisor's configuration")
    device = Device(recipe.device, recipe.threads, recipe.precision)
    dataset = open_dataset(recipe.data, recipe.seed)
    defects.report_to(membership.send, dataset)
    return assemble(welcome, Replica(recipe, dataset, welcome["num_steps"], device), dataset, membership, line)


def assemble(welcome: dict[str, Any], replica: Replica, dataset: Dataset, membership: Membership, line: Line) -> Worker:
    """Everything around a replica and its data."""
    recipe, job = from_plain(welcome["config"], "the supervisor's configuration")
    strategy = strategies.build(job, recipe, dataset.train, replica, membership)
    reporter, last = Reporter(recipe, replica, membership, dataset.waits), welcome["last_step"]
    replica.spans.events = [] if job.profile else None
    root = Path(welcome["run_directory"]) / "checkpoints"
    return Worker(
        recipe=recipe,
        dataset=dataset,
        replica=replica,
        strategy=strategy,
        membership=membership,
        reporter=reporter,
        writer=Writer(root if line.sees(welcome["run_directory"]) else None, line, membership),
        first=0,
        last=last,
        step=strategy.first_step(0),
        verifier=Verifier(job.verify_every, last, replica, strategy, membership, reporter),
        is_observed=job.evaluator != "none",
        counts_confusion=not welcome["trains"],
        pictures=Pictures(
            show_pictures(job) and recipe.script is None, job.histograms_every, replica, strategy, membership
        ),
    )


def compile_now(worker: Worker, trains: bool) -> None:
    """Compiling takes half a minute, and nobody is expelled for it as long as it is a part of the set-up: so all that
    the loop will need is computed once before it."""
    if not worker.recipe.compile:
        return
    replica, leaf = worker.replica, worker.step.leaf(0)
    for step in replica.preprocess.first_steps() if trains else []:
        replica.pool.give(replica.gradient(worker.strategy.read(leaf), leaf.seed, step))
    evaluate_leaf(replica, worker.dataset.test, worker.recipe.evaluation, 0)


def probe(worker: Worker) -> str:
    """What this process makes of the very first leaf: whoever makes something else of it is not let in."""
    worker.reporter.at(0, 0)
    leaf = worker.step.leaf(0)
    found = worker.replica.probe(worker.strategy.read(leaf), leaf.seed)
    worker.reporter.at(0, None)
    return found


def restore(worker: Worker, stored: str, line: Line) -> None:
    """Load a checkpoint, from the supervisor if it lies where this process cannot see it."""
    replica = worker.replica
    try:
        with line.checkpoint(Path(stored)) as path:
            replica.load(checkpoint.load(path, dict(replica.named_state())))
            worker.first = checkpoint.read_info(path).step
    except (checkpoint.Damaged, FileNotFoundError):
        raise UserError(f"{stored} has gone since the start, as when training goes on meanwhile: try again") from None
    worker.step.restart(worker.first)


@contextmanager
def joined() -> Iterator[Worker]:
    """Connect, set up and become a member; afterwards report the end, and stay of use until dismissed."""
    line, membership, welcome = enlist()
    worker: Worker | None = None
    try:
        membership.listen()
        worker = set_up(welcome, membership, line)
        compile_now(worker, trains=welcome["trains"])
        found = probe(worker) if welcome["trains"] else None
        store = come_forward(worker, welcome, line, found)
        yield worker
        finish(worker, worker.replica.digest())
        del store  # it had to live as long as anyone might look for the group
    except BaseException as error:
        report_error(error, membership, worker)
    membership.wait(lambda: False)  # the reader ends the process at the supervisor's word


def come_forward(worker: Worker, welcome: dict[str, Any], line: Line, found: str | None) -> object:
    """Take the state that training begins with, and become a candidate. What is returned must live as long as anyone
    may look for this worker's group."""
    membership = worker.membership
    if welcome["checkpoint"] is not None:
        restore(worker, welcome["checkpoint"], line)
    else:  # after the probe, which is the same when the run is resumed and the file has gone
        worker.start_note = worker.replica.start()
    membership.heartbeat = worker.reporter.heartbeat
    membership.before_end = partial(worker.writer.finish, LAST_WRITE_SECONDS)
    watch_peers(membership, worker.reporter, welcome["patience"])
    injection.install(membership.id, worker.reporter.step, worker.replica, worker.strategy)
    store, address = group.listen(membership.host)
    membership.send(
        {
            "type": "ready",
            "address": address,
            "step": worker.first,
            "state_bytes": worker.replica.num_bytes(),
            "probe": found,
            "environment": provenance.describe(worker.replica.device, worker.recipe.compile),
        }
    )
    return store


def finish(worker: Worker, digest: str) -> None:
    """Say that the last step is done, and stay of use until dismissed."""
    worker.writer.finish()
    traffic = {"sent_bytes": worker.replica.traffic.sent, "received_bytes": worker.replica.traffic.received}
    said = {"step": worker.last, "digest": digest, "spans": worker.reporter.finish(), "traffic": traffic}
    worker.membership.send({"type": "finished", **said})
    stay(worker)


def stay(worker: Worker) -> None:
    """After the last step: help those who are behind or join late, and write what is asked for."""
    membership = worker.membership
    position = membership.position
    assert isinstance(position, Step)
    while True:
        generation = membership.settle()
        worker.strategy.enter(position)
        if membership.is_first:
            worker.reporter.resend()
            if membership.checkpoint_wanted:
                save_if_due(worker, position)
        membership.wait(
            lambda now=generation: (
                membership.has_left(now)  # type: ignore[misc]
                or (membership.is_first and membership.checkpoint_wanted is not None)
            )
        )


def report_error(error: BaseException, membership: Membership, worker: Worker | None, text: str | None = None) -> None:
    """Tell the supervisor what was raised, and where in the training it was; in these words, or by the traceback."""
    text = text or traceback.format_exc()
    print(text, file=sys.stderr, flush=True)
    membership.send(
        {
            "type": "error",
            "user": isinstance(error, UserError),
            "message": str(error) if isinstance(error, UserError | JobError) else text,
            "where": _where(error, worker),
        }
    )


def _where(error: BaseException, worker: Worker | None) -> str:
    if isinstance(error, JobError):
        return ""  # it names the place itself
    return "set-up" if worker is None else worker.reporter.place()


def main() -> None:
    with joined() as worker:
        train(worker)


if __name__ == "__main__":
    main()
