"""The evaluator: `python -m lockstep.evaluator`, a process beside the workers. Training never waits for it.

The supervisor names one good checkpoint after the other; for each leaf of the test set a result goes back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockstep import checkpoint, worker
from lockstep.configfile import from_plain
from lockstep.data import defects, open_dataset
from lockstep.device import Device
from lockstep.enlist import enlist
from lockstep.evaluate import announce, evaluate_leaf, num_leaves
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.reporter import Reporter


def serve(welcome: dict[str, Any], membership: Membership, line: Line) -> None:
    """Evaluate what the supervisor names, until it says that the job is over."""
    recipe, _ = from_plain(welcome["config"], "the supervisor's configuration")
    dataset = open_dataset(recipe.data, recipe.seed)
    defects.report_to(membership.send, dataset)
    replica = Replica(recipe, dataset, welcome["num_steps"], Device(recipe.device, recipe.threads, recipe.precision))
    reporter = Reporter(recipe, replica, membership, dataset.waits)
    membership.heartbeat = reporter.heartbeat
    membership.send({"type": "ready", "address": membership.host, "step": -1})
    checkpoints = Path(welcome["run_directory"]) / "checkpoints"
    while True:
        membership.wait(lambda: membership.assignment is not None)
        with membership.changed:
            assignment, membership.assignment = membership.assignment, None
        assert assignment is not None
        with line.checkpoint(checkpoints / assignment["name"]) as path:
            replica.load(checkpoint.load(path, dict(replica.named_state())))
        with replica.spans("evaluate"):
            leaves = range(num_leaves(len(dataset.test), recipe.evaluation))
            for leaf in leaves:
                announce(leaves[leaf:], dataset.test, recipe.evaluation)
                reporter.at(assignment["step"], leaf)
                result = evaluate_leaf(replica, dataset.test, recipe.evaluation, leaf)
                message = {"type": "evaluation", "step": assignment["step"], "leaf": leaf}
                membership.send({**message, **worker.message_of(result)})
            reporter.at(assignment["step"], None)


def main() -> None:
    line, membership, welcome = enlist()
    membership.listen()
    try:
        serve(welcome, membership, line)
    except BaseException as error:
        worker.report_error(error, membership, None)
    membership.wait(lambda: False)  # the reader ends the process at the supervisor's word


if __name__ == "__main__":
    main()
