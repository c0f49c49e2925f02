"""Parameter servers and the driver: the digest of `allreduce`, whatever their number and whoever dies."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from lockstep import injection
from lockstep.configfile import from_plain
from lockstep.data import open_dataset
from lockstep.device import Device
from lockstep.exchange import volume
from lockstep.replica import Replica
from tests.conftest import ENDLESS, RECIPE, digest_in, run, start, stop_and_compare
from tests.test_resume import rows_of, wait_for_step

psutil = pytest.importorskip("psutil")

Undisturbed = tuple[str, list[float]]
SERVER = ("--strategy", "server")


def trained(*arguments: str, inject: str = "") -> tuple[str, str]:
    """The digest, and what was shown on the way."""
    with injection.rules(inject):
        result = run("train", *RECIPE, "--run", "run", *arguments)
    return digest_in(result), result.stderr + result.stdout


def replica_of_run() -> Replica:
    """What a worker of the run has in memory."""
    recipe, _ = from_plain(json.loads(Path("runs/run/config.json").read_text()), "config.json")
    return Replica(recipe, open_dataset(recipe.data, 0), 1, Device("cpu", 1))


def vector_length() -> int:
    """Numbers in the vector that travels."""
    return replica_of_run().layout.length


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (1, 2), (2, 1), (2, 4), (3, 2), (4, 4)], ids=str)
def test_servers_have_the_digest_of_allreduce(
    workspace: Path, undisturbed: Undisturbed, workers: int, servers: int
) -> None:
    """F53 F59 F63 F81: one command starts all of them."""
    digest, shown = trained("--workers", str(workers), *SERVER, "--servers", str(servers))
    assert digest == undisturbed[0]
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]
    assert rows_of("run", "generation")[-1]["servers"] == servers
    assert len(list(Path("runs/run/logs").glob("server-*.log"))) == servers
    assert f"and {servers} server" in shown
    assert all(row["sent_bytes"] for row in rows_of("run", "train"))


def test_a_driver_collects_and_hands_out(workspace: Path, undisturbed: Undisturbed) -> None:
    """F52 F59"""
    digest, _ = trained("--workers", "2", "--strategy", "driver")
    assert digest == undisturbed[0]
    assert [path.name for path in Path("runs/run/logs").glob("driver-*")] == ["driver-2.log"]


@pytest.mark.parametrize(
    ("inject", "servers", "deaths"),
    [
        ("kill worker=2 step=5 phase=push", 1, 1),
        ("kill worker=2 step=5 phase=result", 1, 1),
        ("kill worker=3 step=0 phase=push", 2, 1),
        ("kill worker=2 step=23 phase=result", 2, 1),
        ("kill worker=2 step=5 phase=push; kill worker=3 step=5 phase=push", 2, 2),
        ("kill worker=2 step=5 phase=result; kill worker=0 step=5 phase=exchange", 2, 2),
        ("kill worker=0 step=5 phase=optimizer; kill worker=1 step=14 phase=backward", 1, 2),
    ],
)
def test_a_killed_server_leaves_weights_bit_identical(
    workspace: Path, undisturbed: Undisturbed, inject: str, servers: int, deaths: int
) -> None:
    """F53 F79: its slices move to the others, or to the workers until there is another one."""
    digest, _ = trained("--workers", "2", *SERVER, "--servers", str(servers), inject=inject)
    assert digest == undisturbed[0]
    assert len(rows_of("run", "death")) == deaths
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]


def test_a_server_that_stands_still_is_replaced(workspace: Path) -> None:
    process = start("train", *ENDLESS, "--workers", "2", *SERVER, "--patience", "2", "--run", "run")
    wait_for_step(process, "run", 3)
    server = by_id(process.pid, 2)
    os.kill(server, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while [row.get("servers") for row in rows_of("run", "generation")][-1:] != [1] or not rows_of("run", "death"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "sent no heartbeat" in rows_of("run", "death")[0]["how"]
    wait_for_step(process, "run", rows_of("run", "train")[-1]["step"] + 5)
    stop_and_compare(process, "run")


def by_id(supervisor: int, id_: int) -> int:
    """The process that the supervisor has started under a number."""
    for child in psutil.Process(supervisor).children():
        if child.environ().get("LOCKSTEP_ID") == str(id_):
            return int(child.pid)
    raise AssertionError(f"no process {id_}")


SLEEPY = """
import time
from lockstep.models.small import small

def net(num_classes, image_shape):
    model = small(num_classes, image_shape)
    model.register_forward_pre_hook(lambda module, inputs: time.sleep(0.05) if module.training else None)
    return model
"""


SLOW = "slow worker=1 factor=10"


def test_late_leaves_are_computed_by_others_to_the_same_bits(workspace: Path, undisturbed: Undisturbed) -> None:
    """F55: the step does not wait for the slow worker, which follows, and loses nothing: others send more leaves than
    their own."""
    digest, _ = trained("--workers", "3", *SERVER, "--servers", "2", "--backup", "4", inject=SLOW)
    assert digest == undisturbed[0]
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]
    assert not rows_of("run", "death")
    sent = {row["worker"]: row["sent_bytes"] for row in rows_of("run", "spans")}
    length = vector_length()
    own = {id_: 24 * 4 * volume.served_sent(length, 4, 3, id_, every_leaf=True) for id_ in sent}
    assert any(sent[id_] > own[id_] for id_ in (0, 2)), (sent, own)


def test_a_straggler_that_nobody_can_help_any_more_copies_the_state(workspace: Path) -> None:
    """F55: it is too far behind for the results that servers keep. All are slow, so that the others stay together: who
    is stopped while members change because of another straggler is waited for until its patience ends."""
    slowly = "; ".join(f"slow worker={id_} factor=10" for id_ in range(3))
    arguments = [*ENDLESS, "--workers", "3", *SERVER, "--backup", "4", "--patience", "110", "--run", "run"]
    with injection.rules(slowly):
        process = start("train", *arguments)
    wait_for_step(process, "run", 3)
    straggler = by_id(process.pid, 1)
    os.kill(straggler, signal.SIGSTOP)
    wait_for_step(process, "run", rows_of("run", "train")[-1]["step"] + 12)
    os.kill(straggler, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while not any("straggler" in row["causes"] and 1 in row["joined"] for row in rows_of("run", "generation")):
        assert time.monotonic() < deadline, rows_of("run", "generation")
        time.sleep(0.02)
    wait_for_step(process, "run", rows_of("run", "train")[-1]["step"] + 5)
    stop_and_compare(process, "run")


def test_backups_make_up_for_a_slow_worker(workspace: Path) -> None:
    """F55: with them a step takes as long as with a worker less, without them as long as the slow worker takes."""
    sleepy = "import time\nfrom lockstep.models.small import small\ndef net(num_classes, image_shape):\n"
    sleepy += "    model = small(num_classes, image_shape)\n"
    sleepy += (
        "    model.register_forward_pre_hook(lambda module, inputs: time.sleep(0.05) if module.training else None)\n"
    )
    (workspace / "sleepy.py").write_text(sleepy + "    return model\n")

    def seconds(name: str, workers: int, inject: str, *arguments: str) -> float:
        with injection.rules(inject):
            options = ("--leaves", "8", "--steps", "10", "--set", "model.name=sleepy.py:net")
            command = ("train", *RECIPE, *options, "--workers", str(workers), *SERVER, *arguments, "--run", name)
            digests.add(digest_in(run(*command)))
        steps = [row["time"] for row in rows_of(name, "train")]
        return float(steps[-1] - steps[0])

    digests: set[str] = set()
    fewer = seconds("fewer", 3, "")
    backed = seconds("backed", 4, SLOW, "--backup", "4")
    waiting = seconds("waiting", 4, SLOW)
    assert backed < 2 * fewer, "1.25 is measured by `python -m bench stragglers`, on a quiet machine"
    assert waiting > 2 * backed
    assert len(digests) == 1


def test_late_leaves_can_be_dropped_and_are_counted(workspace: Path, undisturbed: Undisturbed) -> None:
    """F55: the classic way; the run ends in time, with other weights, and says what it left out."""
    digest, shown = trained("--workers", "3", *SERVER, "--late", "drop", "--wait-for", "3", inject=SLOW)
    dropped = sum(row.get("dropped_leaves", 0) for row in rows_of("run", "train"))
    assert digest != undisturbed[0]
    assert 12 <= dropped <= 24
    assert rows_of("run", "train")[-1]["step"] == 24
    assert f"{dropped} leaves were dropped" in shown


WAITING = "server --late drop --wait-for 4"
"""It sends every leaf by itself, as with backups, but no worker ever computes what is another's."""


@pytest.mark.parametrize(
    ("strategy", "workers"), [("allreduce", 2), ("allreduce", 3), ("server", 3), ("driver", 2), (WAITING, 2)]
)
def test_the_bytes_of_a_step_are_those_of_the_formula(
    workspace: Path, undisturbed: Undisturbed, strategy: str, workers: int
) -> None:
    """F52 F57: all sums go to the driver or the servers, and results come from there. Start weights never travel, so
    that the first step sends no more than the others. Who waits for all leaves drops none."""
    digest, _ = trained("--workers", str(workers), "--strategy", *strategy.split())
    assert digest == undisturbed[0]
    length = vector_length()
    rows = rows_of("run", "train")
    if strategy == "allreduce":
        sent, received = volume.allreduce_sent(length, 4, workers, 0), None
    else:
        sent = volume.served_sent(length, 4, workers, 0, every_leaf=strategy == WAITING)
        received = volume.served_received(length)
    assert {row["sent_bytes"] for row in rows} == {4 * sent}
    if received is not None:
        assert {row["received_bytes"] for row in rows} == {4 * received}
    if 4 % workers == 0 and strategy == "allreduce":
        assert sent <= 1.05 * volume.allreduce_least(length, workers)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--strategy", "allreduce", "--servers", "2"], "--servers is for the strateg"),
        (["--strategy", "driver", "--servers", "2"], "--servers is for the strateg"),
        ([*SERVER, "--servers", "0"], "--servers takes a number of at least 1"),
        ([*SERVER, "--backup", "-1"], "--backup takes a number of at least 0"),
        ([*SERVER, "--late", "drop"], "--late drop and --wait-for K belong together"),
        ([*SERVER, "--wait-for", "3"], "--late drop and --wait-for K belong together"),
        ([*SERVER, "--late", "drop", "--wait-for", "5"], "a step has 4 leaves, so --wait-for takes 1 to 4"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(workspace: Path, arguments: list[str], sentence: str) -> None:
    result = run("train", *RECIPE, *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("runs").exists()


def test_a_joiner_fetches_the_state_once(workspace: Path) -> None:
    """F57: weights, statistics and optimizer travel to it once; after that it receives what a step needs."""
    (workspace / "sleepy.py").write_text(SLEEPY)
    with injection.rules("kill worker=1 step=3 phase=forward"):
        options = ("--steps", "120", "--set", "model.name=sleepy.py:net", "--workers", "2")
        digest_in(run("train", *RECIPE, *options, "--run", "run"))
    joined = next(row["step"] for row in rows_of("run", "generation") if row["joined"] == [2])
    (received,) = [row["received_bytes"] for row in rows_of("run", "spans") if row["worker"] == 2]
    replica = replica_of_run()
    vector = 4 * replica.layout.length
    state = replica.num_bytes() + vector  # the last result belongs to it
    extra = received - (120 - joined) * vector
    assert state <= extra <= 1.1 * state + 4 * vector, "in its first step it may receive more sums"
