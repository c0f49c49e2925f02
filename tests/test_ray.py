"""The same job on a Ray cluster: a real one, of several nodes on this machine, whose nodes come and go."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep import injection
from tests.conftest import ENDLESS, RECIPE, REPOSITORY, digest_in, run, start, stop_and_compare
from tests.data.s3server import ANYONE, Server
from tests.engines.raycluster import HEAD, SETTINGS, Nodes
from tests.test_imagenet_runs import ALEXNET, labelled
from tests.test_resume import rows_of, wait_for_step
from tests.test_survival import wait_for_generation

psutil = pytest.importorskip("psutil")
pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(240)

HOSTS = ("127.0.0.3", "127.0.0.4")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A head without cores, a node with two, and a node with one."""
    nodes = Nodes()
    try:
        nodes.add(HOSTS[0], 2)
        nodes.add(HOSTS[1], 1)
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(autouse=True)
def _settings(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


SLOWLY = "; ".join(f"slow worker={id_} factor=15" for id_ in range(4))
"""A run that waits for something must not get far meanwhile: it is trained once more, to compare."""


def on(nodes: Nodes, *options: str) -> list[str]:
    return ["--engine", "ray", "--address", nodes.address, *options]


def node_of(role: str, id_: int) -> str:
    """Where a process ran, as the first line of its log says."""
    first = Path(f"runs/run/logs/{role}-{id_}.log").read_text().splitlines()[0]
    assert first.startswith("lockstep: on node ")
    return first.split()[-1]


def scenario(nodes: Nodes, name: str) -> Any:
    command = [sys.executable, "-m", "tests.engines.raydriver", nodes.address, name]
    result = subprocess.run(command, env=nodes.environment, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")  # Ray keeps its worries to itself
    return json.loads(result.stdout)


def test_workers_on_several_nodes_train_to_the_same_digest(nodes: Nodes, undisturbed: tuple[str, list[float]]) -> None:
    """F61 F72 F83: the cluster is joined by its address, all logs are in the run directory, and it is said where that
    is."""
    result = run("train", *RECIPE, "--workers", "3", "--run", "run", *on(nodes, "--spread"))
    assert digest_in(result) == undisturbed[0]
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]
    assert {node_of("worker", id_) for id_ in range(3)} == set(HOSTS)
    assert f"is on {HEAD} ({socket.gethostname()})" in result.stderr
    assert not rows_of("run", "death")


def test_the_example_for_imagenet_runs_on_the_cluster(nodes: Nodes, workspace: Path, s3: Server) -> None:
    """F16 F17 F31 F52 F83: tars and labels in S3, gradients through the driver, the bits of one worker with files."""
    local = labelled(workspace)
    for path in [*(workspace / "train").iterdir(), workspace / "train.txt"]:
        s3.put(ANYONE, f"alexnet/{path.relative_to(workspace)}", path.read_bytes())
    data = ["--data", f"s3://{ANYONE}/alexnet/train", "--labels", f"s3://{ANYONE}/alexnet/train.txt"]
    data += ["--anonymous", "--endpoint-url", s3.endpoint_url]
    result = run("train", *ALEXNET, *data, "--workers", "2", "--strategy", "driver", "--run", "driver", *on(nodes))
    assert "3 of 4 shards; --key-prefix n for all" in result.stderr
    assert digest_in(result) == digest_in(run("train", *ALEXNET, *local, "--workers", "1", "--run", "alone"))


def test_a_job_is_submitted_to_the_cluster(nodes: Nodes, undisturbed: tuple[str, list[float]]) -> None:
    """F83: by `ray job submit`, from a host that need not be a node; it knows no address but the one Ray gives it."""
    Path("code").mkdir()
    Path("code/mine.py").write_text("from lockstep.recipes import RECIPES\nsame = RECIPES['demo']\n")
    train = [
        sys.executable,
        "-m",
        "lockstep",
        "train",
        "mine.py:same",
        *RECIPE[1:],
        "--workers",
        "2",
        "--engine",
        "ray",
    ]
    command = [str(Path(sys.executable).with_name("ray")), "job", "submit", "--address", nodes.jobs]
    command += ["--working-dir", "code", "--", *train, "--run", str(Path("runs/run").resolve())]
    result = subprocess.run(command, env=nodes.environment, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"digest {undisturbed[0]}" in result.stdout
    assert "joined a Ray cluster" in result.stdout
    assert {node_of("worker", id_) for id_ in range(2)} <= set(HOSTS)


def test_a_lost_node_shrinks_the_job_and_a_new_one_lets_it_grow_back(nodes: Nodes) -> None:
    """F83."""
    with injection.rules(SLOWLY):
        process = start("train", *ENDLESS, "--workers", "3", "--run", "run", *on(nodes))
    wait_for_step(process, "run", 3)
    nodes.kill(HOSTS[1])
    wait_for_generation("run", 2)
    (death,) = rows_of("run", "death")
    assert death["how"] == f"was lost with its node {HOSTS[1]}"
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 3)
    assert rows_of("run", "generation")[-1]["workers"] == 2
    nodes.add(HOSTS[1], 1)
    wait_for_generation("run", 3)
    (newcomer,) = rows_of("run", "generation")[-1]["joined"]
    assert newcomer > 2
    assert node_of("worker", 3) == HOSTS[1]
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 3)
    shown = stop_and_compare(process, "run")
    assert f"worker {death['worker']} was lost with its node {HOSTS[1]}; the others go on" in shown


def test_a_job_that_ends_with_its_head_goes_on_elsewhere(
    nodes: Nodes, undisturbed: tuple[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F83: the head of another cluster is lost, and Ray ends what belongs to it; `resume` takes the address of this."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")
    lost = Nodes()
    try:
        lost.add("127.0.0.5", 2)
        with injection.rules(SLOWLY):
            process = start("train", *RECIPE, "--workers", "2", "--run", "run", *on(lost))
        wait_for_step(process, "run", 12)
        lost.kill(HEAD)
        process.communicate(timeout=100)
    finally:
        lost.close()
    assert process.returncode != 0
    resumed = run("resume", "run", "--address", nodes.address)
    assert digest_in(resumed) == undisturbed[0]
    assert "24 steps from step " in resumed.stderr


def test_a_submitted_job_with_servers_begins_with_fewer_workers(
    nodes: Nodes, undisturbed: tuple[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F61 F83: what `ray job submit` says in the environment counts. The servers find room where all cores are taken,
    and the fourth worker none."""
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    submitted = {"runtime_env": {"env_vars": {"SUBMITTED": "1"}}, "metadata": {"job_name": "one"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(submitted))
    options = ["--strategy", "server", "--servers", "2", "--workers", "4", "--min-workers", "2", "--engine", "ray"]
    assert digest_in(run("train", *RECIPE, *options, "--run", "run")) == undisturbed[0]
    first = rows_of("run", "generation")[0]
    assert 2 <= first["workers"] <= 3
    assert first["servers"] == 2
    assert {node_of("server", id_) for id_ in (4, 5)} <= {HEAD, *HOSTS}
    assert not Path("runs/run/logs/worker-3.log").exists()


OWN = "from lockstep.models.small import small\nfrom parts import WIDTH\ndef net(num_classes, image_shape):\n"
ITEMS = """
import numpy as np
def both():
    pixels = np.random.default_rng(0).integers(0, 256, (400, 3, 32, 32), dtype=np.uint8)
    return (pixels[:300], np.arange(300) % 10), (pixels[300:], np.arange(100) % 10)
"""


def test_code_of_the_users_own_reaches_nodes_that_do_not_see_it(nodes: Nodes, workspace: Path) -> None:
    """F83: the second worker starts when the file is gone, and gets the one with which the run began."""
    code = workspace / "code"
    code.mkdir()
    (code / "models.py").write_text(f"{OWN}    return small(num_classes, image_shape, width=WIDTH)\n")
    (code / "parts.py").write_text("WIDTH = 8\n")
    (code / "items.py").write_text(ITEMS)
    own = ["--model", "code/models:net", "--data", "code/items.py:both"]
    with injection.rules(SLOWLY):
        process = start("train", *ENDLESS, *own, "--workers", "1", "--run", "run", *on(nodes))
    wait_for_step(process, "run", 2)
    code.rename(workspace / "elsewhere")
    assert run("resize", "run", "2").returncode == 0
    wait_for_generation("run", 2)
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 3)
    (workspace / "elsewhere").rename(code)
    stop_and_compare(process, "run", *own)


@pytest.mark.parametrize("name", ["average_weights", "average_gradients"])
def test_actors_that_move_weights_themselves_fit_a_line(nodes: Nodes, name: str) -> None:
    """F32 F50: `lockstep.weights` through Ray's object store, in 201 iterations."""
    command = [sys.executable, str(REPOSITORY / f"examples/{name}.py")]
    environment = {**nodes.environment, "RAY_ADDRESS": nodes.address}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr  # arrays in the store are read-only, which is no reason to worry
    shown = [line for line in result.stdout.splitlines() if line.startswith("iteration ")]
    assert len(shown) == 5
    assert shown[-1] == "iteration 200: w = 0.1000, b = 0.3000"


def test_every_process_gets_the_device_that_ray_gives_it(nodes: Nodes) -> None:
    """F60: one GPU for each worker, none for a server, which needs no core either."""
    nodes.add("127.0.0.6", 2, gpus=2)
    try:
        scenario(nodes, "devices")
    finally:
        nodes.kill("127.0.0.6")
    (first, *one), (second, *other), (_, *none) = (
        Path(f"{name}.log").read_text().splitlines() for name in ("worker-0", "worker-1", "server-2")
    )
    assert first == second == "lockstep: on node 127.0.0.6"
    assert sorted([one, other]) == [["0"], ["1"]]
    assert none == [""]


def test_how_a_process_ended_is_told_with_its_node(nodes: Nodes) -> None:
    exits = scenario(nodes, "deaths")
    assert exits["0"][0].startswith("ended with exit code 4 on node 127.0.0.")
    assert exits["1"][0].startswith("was killed by SIGKILL on node 127.0.0.")
    assert exits["2"][0].startswith("was lost with its Ray actor on 127.0.0.")
    assert "The actor died unexpectedly" in Path("worker-2.log").read_text()
    assert [exits[id_][1] for id_ in "012"] == [False, True, True]
    assert Path("worker-0.log").read_text().splitlines()[1:] == ["last words"]


def test_a_job_that_finds_no_room_says_so_and_waits(nodes: Nodes) -> None:
    found = scenario(nodes, "room")
    (note,) = found["notes"][1:]
    assert note.startswith(
        "waiting for room for 9 workers of 1 core: the Ray cluster has 3 cores, of which 3 cores are"
    )
    assert "--min-workers" in note
    assert (found["started"], found["exits"]) == (0, {})
    assert not Path("started").exists()


def test_without_a_cluster_one_is_started_and_ended(
    undisturbed: tuple[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F83: with as many workers as are wanted, though the machine may have fewer cores."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as directory:
        monkeypatch.setenv("RAY_TMPDIR", directory)
        result = run("train", *RECIPE, "--workers", "3", "--run", "run", "--engine", "ray")
        assert digest_in(result) == undisturbed[0]
        assert "joined a Ray cluster" not in result.stderr
        commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        assert not [command for command in commands if directory in command]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9"), ("ray://head:10001", "--address takes HOST:PORT")],
)
def test_a_wrong_address_is_one_sentence(address: str, sentence: str) -> None:
    """F61."""
    result = run("train", *RECIPE, "--engine", "ray", "--address", address, "--run", "run")
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("lockstep: ")]
    assert sentence in line
    assert "Traceback" not in result.stderr
    assert not Path("runs/run").exists()


def test_gpus_of_the_cluster_need_not_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """F60: the local engine refuses --device cuda on a host without GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    arguments = ["train", *RECIPE, "--device", "cuda", "--run", "run"]
    assert "this host has no visible GPU" in run(*arguments).stderr
    answer = run(*arguments, "--engine", "ray", "--address", "127.0.0.1:9")
    assert "no Ray cluster answers" in answer.stderr
