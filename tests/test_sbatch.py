"""The batch script of `lockstep submit slurm`, as text and as a shell runs it; no Slurm is needed here."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import sbatch
from lockstep.cli import main
from lockstep.config import Job
from lockstep.engines.slurm_text import Partition
from lockstep.errors import UserError
from lockstep.sbatch import Batch
from tests.conftest import Command
from tests.engines.virtual_slurm import wait_until

BATCH = Batch(
    name="demo-1",
    directory=Path("/home/ada/lab"),
    logs=Path("/home/ada/lab/runs/demo-1/logs"),
    nodes=3,
    workers_per_node=2,
    cpus_per_worker=4,
    gpus_per_worker=1,
    time="02:30:00",
    margin=120,
    partition="gpu",
    account="lab",
    setup=("module load cuda", "export NCCL_DEBUG=INFO"),
    options=("--constraint=a100",),
    command=(
        "/opt/lockstep/bin/python",
        "-m",
        "lockstep",
        "train",
        "my recipe.toml",
        "--workers",
        "6",
        "--run",
        "demo-1",
    ),
)

GOLDEN = """\
#!/bin/bash
# Written by `lockstep submit slurm`. Every worker and server is a step of this job, started with srun.
#SBATCH --job-name=demo-1
#SBATCH --chdir=/home/ada/lab
#SBATCH --output=/home/ada/lab/runs/demo-1/logs/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=2
#SBATCH --time=02:30:00
#SBATCH --signal=B:USR1@120
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --export=ALL
#SBATCH --constraint=a100

module load cuda
export NCCL_DEBUG=INFO

# A job that outlives its nodes (--no-kill) outlives its first one too, without this script: the second node watches it,
# and puts the job back into the queue.
srun --overlap --nodes=1 --ntasks=1 --relative=1 --mem=0 --job-name=lockstep-watch bash -c '
  while sleep 60; do
    nodes=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%N) && [ -n "$nodes" ] &&
      ! scontrol show hostnames "$nodes" | grep --quiet --line-regexp "$0" && scontrol requeue "$SLURM_JOB_ID"
  done' "$SLURMD_NODENAME" &>/dev/null &
watch=$!

/opt/lockstep/bin/python -m lockstep train 'my recipe.toml' \\
  --workers 6 \\
  --run demo-1 &
training=$!

# USR1 comes 120 seconds before the time limit, TERM when the job is cancelled or makes way for another: stop
# with a checkpoint.
trap 'kill -USR1 "$training" 2>/dev/null' USR1
trap 'kill -TERM "$training" 2>/dev/null' TERM
while kill -0 "$training" 2>/dev/null; do wait "$training"; done # a signal ends `wait`, not the training
wait "$training"
code=$?
kill "$watch"

# 138: stopped by USR1, out of time. The job goes on from its checkpoint when it is its turn again.
if [ "$code" -eq 138 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
"""


def test_the_script_is_what_a_person_would_write() -> None:
    """F82."""
    assert sbatch.script(BATCH) == GOLDEN


FAKE = f"""#!{sys.executable}
import json, os, signal, sys, time
json.dump(sys.argv[1:], open("arguments.json", "w"))
codes = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: codes.append(128 + number))
open("ready", "w")
while os.path.exists("wait") and not codes:
    time.sleep(0.01)
time.sleep(0.2)  # the checkpoint
sys.exit(codes[0] if codes else int(os.environ.get("FAKE_CODE", "0")))
"""


def start_script(directory: Path, batch: Batch, **environment: str) -> subprocess.Popen[str]:
    """The script, with a `lockstep` and an `scontrol` that only write down how they are called."""
    tools = directory / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "lockstep").write_text(FAKE)
    (tools / "scontrol").write_text('#!/bin/sh\necho "$@" > requeued\n')
    (tools / "srun").write_text("#!/bin/sh\necho $$ > watch\nexec sleep 1000\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (directory / "job.sh").write_text(sbatch.script(batch))
    path = f"{tools}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SLURM_JOB_ID": "17", **environment}
    return subprocess.Popen(["bash", "job.sh"], cwd=directory, env=environment, text=True, stderr=subprocess.PIPE)


@pytest.mark.parametrize("word", ["two words", "it's", '"quoted"', "$HOME `id` \\", "a\nb", "*", "ä", ""])
def test_names_reach_the_command_as_they_are(word: str, tmp_path: Path) -> None:
    command = ("lockstep", "train", word, "--run", word, f"--data={word}")
    process = start_script(tmp_path, replace(BATCH, command=command, setup=()))
    assert process.wait(timeout=60) == 0, process.communicate()
    assert json.loads((tmp_path / "arguments.json").read_text()) == list(command[1:])


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_is_handed_on_and_only_the_time_limit_queues_the_job_again(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The code is that of the training, which ends in its own time after the signal."""
    (tmp_path / "wait").touch()
    process = start_script(tmp_path, replace(BATCH, command=("lockstep",), setup=()))
    wait_until((tmp_path / "ready").exists, "the training")
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number.value
    requeued = tmp_path / "requeued"
    assert requeued.exists() == (number == signal.SIGUSR1)
    if requeued.exists():
        assert requeued.read_text() == "requeue 17\n"


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_script_ends_as_the_training_does(code: int, tmp_path: Path) -> None:
    process = start_script(tmp_path, replace(BATCH, command=("lockstep",), setup=()), FAKE_CODE=str(code))
    assert process.wait(timeout=60) == code
    assert not (tmp_path / "requeued").exists()
    watch = Path("/proc") / (tmp_path / "watch").read_text().strip()
    wait_until(lambda: not watch.exists(), "the end of what watches the first node")


def test_values_on_sbatch_lines_are_quoted_where_they_must_be() -> None:
    assert sbatch.quoted("/home/ada/runs/demo-1") == "/home/ada/runs/demo-1"
    assert sbatch.quoted("two words") == '"two words"'
    assert sbatch.quoted('a"b\\') == '"a\\"b\\\\"'
    percent = sbatch.script(replace(BATCH, logs=Path("/tmp/100%/logs")))
    assert "#SBATCH --output=/tmp/100%%/logs/slurm-%j.log\n" in percent


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("30", 1800), ("30:15", 1815), ("02:30:00", 9000), ("1-12", 129600), ("1-12:30", 131400), ("1-00:00:01", 86401)],
)
def test_time_limits_are_read_as_slurm_reads_them(limit: str, seconds: int) -> None:
    assert sbatch.seconds_of(limit) == seconds


def test_a_time_limit_that_leaves_no_time_is_refused() -> None:
    """It would be signalled at once, again and again."""
    sbatch.check_times("5", 120)
    with pytest.raises(UserError, match="give at least 4 minutes, or a smaller --margin"):
        sbatch.check_times("00:03:00", 120)
    with pytest.raises(UserError, match="--time takes a limit such as"):
        sbatch.check_times("soon", 120)
    with pytest.raises(UserError, match="--margin takes"):
        sbatch.check_times("30", 0)


def test_how_many_nodes_a_job_needs() -> None:
    """F82: servers share nodes with workers, the evaluator has one of its own."""
    plain, own = Job(workers=5, servers=3), Job(workers=5, servers=3, evaluator="own")
    assert sbatch.count_nodes(plain, None, None) == (5, 1)
    assert sbatch.count_nodes(plain, None, 2) == (3, 2)
    assert sbatch.count_nodes(plain, 2, None) == (2, 3)
    assert sbatch.count_nodes(plain, 4, 2) == (4, 2)
    assert sbatch.count_nodes(own, None, 2) == (4, 2)
    assert sbatch.count_nodes(own, 2, None) == (2, 5)
    assert sbatch.count_nodes(replace(own, evaluator="shared"), None, 2) == (3, 2)
    with pytest.raises(UserError, match="need 3 nodes, and --nodes says 2: give --nodes 3"):
        sbatch.count_nodes(plain, 2, 2)
    with pytest.raises(UserError, match="need 5 nodes and one for the evaluator, and --nodes says 1"):
        sbatch.count_nodes(own, 1, 1)
    with pytest.raises(UserError, match="--nodes takes"):
        sbatch.count_nodes(plain, 0, None)


def test_a_job_that_no_partition_can_hold_is_refused() -> None:
    """F82."""
    partitions = {"small": Partition(4, 3), "large": Partition(8, 8)}
    sbatch.check_nodes(3, partitions, "small", None)
    sbatch.check_nodes(8, partitions, "small", "small,large")
    sbatch.check_nodes(9, partitions, None, None)  # the site decides where it goes
    with pytest.raises(UserError, match="needs 4 nodes, and the partition small has 3 that can be used, of 4: "):
        sbatch.check_nodes(4, partitions, "small", None)
    with pytest.raises(UserError, match="the partition large has 8: "):
        sbatch.check_nodes(9, partitions, "small", "large,small")
    with pytest.raises(UserError, match="unknown partition 'lrage': did you mean 'large'"):
        sbatch.check_nodes(1, partitions, "small", "lrage")


def test_dry_run_prints_the_script_with_every_option_of_train(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F82: one command; nothing is made."""
    given = ["demo", "--steps", "24", "--batch-size", "16", "--set", "log_every=1", "--set", "seed=3", "--no-compile"]
    given += ["--workers", "3", "--strategy", "server", "--servers", "2", "--no-replace", "--logger", "csv"]
    given += ["--cpus-per-worker", "2", "--no-tensorboard", "--patience", "20"]
    asked = [
        "--time",
        "02:30:00",
        "--workers-per-node",
        "2",
        "--setup",
        "module load cuda",
        "--sbatch=--constraint=gpu",
    ]
    assert main(["submit", "slurm", *given, *asked, "--dry-run"]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --ntasks-per-node=2\n" in script
    assert "#SBATCH --cpus-per-task=2\n" in script
    assert "#SBATCH --constraint=gpu\n\nmodule load cuda\n" in script
    assert "gpus" not in script
    (line,) = [line for line in script.replace("\\\n", "").splitlines() if line.endswith("&") and " train " in line]
    words = shlex.split(line)
    assert words[:5] == [sys.executable, "-m", "lockstep", "train", "demo"]
    pairs = [("--steps", "24"), ("--batch-size", "16"), ("--workers", "3"), ("--servers", "2"), ("--logger", "csv")]
    pairs += [("--run", "demo-1"), ("--engine", "slurm"), ("--device", "cpu"), ("--patience", "20.0")]
    pairs += [("--set", "log_every=1"), ("--set", "seed=3"), ("--cpus-per-worker", "2")]
    for pair in pairs:
        assert pair in list(itertools.pairwise(words))
    assert {"--no-compile", "--no-replace", "--no-tensorboard", "--resume"} < set(words)
    assert not list(workspace.iterdir())


def test_gpus_and_another_command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F60: a login node needs no GPU, and every worker is given one."""
    common = ["submit", "slurm", "demo", "--workers", "4", "--nodes", "2", "--time", "30", "--dry-run"]
    for asked in (["--gpus-per-worker", "1"], ["--device", "cuda"], ["--set", "device=cuda"]):
        assert main([*common, *asked, "--launch", "apptainer run 'my image.sif'", "--run", "./x"]) == 0
        script = capsys.readouterr().out
        assert "#SBATCH --gpus-per-node=2\n" in script
        assert "apptainer run 'my image.sif' train demo \\\n" in script
        assert "--device cuda \\\n" in script
        assert "--run ./x \\\n" in script
        assert f"#SBATCH --output={workspace}/x/logs/slurm-%j.log\n" in script


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("nosuch --workers 2 --time 30", "unknown recipe 'nosuch'"),
        ("demo --workers 2", "the following arguments are required: --time"),
        ("demo --time 30", "give --workers N"),
        ("demo --workers 99 --time 30", "99 workers"),
        ("demo --workers 2 --time 30 --set seed=x", "seed"),
        ("demo --workers 2 --time 30 --data nowhere", "nowhere"),
        ("demo --workers 2 --time 30 --engine local", "leave it out"),
        ("demo --workers 2 --time 30 --gpus-per-worker 2", "takes 0 or 1"),
        ("demo --workers 2 --time 30 --gpus-per-worker 1 --device cpu", "contradict each other"),
        ("demo --workers 2 --time 30 --gpus-per-worker 0 --device cuda", "contradict each other"),
        ("demo --workers 2 --time 1", "leaves no time"),
        ("demo --workers 2 --time 30 --nodes 1 --workers-per-node 1", "give --nodes 2"),
        ("demo --workers 2 --time 30 --resume", "give --run NAME"),
        ("demo --workers 2 --time 30 --launch 'a", "is no command"),
        ("demo --workers 2 --time 30 --address auto", "means nothing with --engine slurm"),
    ],
)
def test_what_train_would_refuse_is_refused_before_it_is_submitted(
    typed: str, sentence: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", "slurm", *typed.split()]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.err.count("\n") == 1
    assert not list(workspace.iterdir())


def test_a_name_with_a_line_break_cannot_become_an_option(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "slurm", "demo", "--workers", "2", "--time", "30", "--run", "a\n#SBATCH --wrap=id"]) == 2
    assert "must be one line of text" in capsys.readouterr().err
    assert main(["submit", "slurm", "demo", "--workers", "2", "--time", "30", "--run", "a\\b"]) == 2
    assert "Slurm takes no backslash" in capsys.readouterr().err


def test_a_host_without_slurm(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace))
    assert main(["submit", "slurm", "demo", "--workers", "2", "--time", "30"]) == 2
    assert "there is no sinfo here: submit from a host of the cluster" in capsys.readouterr().err
    assert not list(workspace.iterdir())


def test_the_engine_outside_of_a_job(lockstep: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    result = lockstep("train", "demo", "--steps", "1", "--engine", "slurm", "--workers", "1")
    assert result.returncode == 2
    assert "submit one with `lockstep submit slurm`, or get an allocation with salloc" in result.stderr
    assert "Traceback" not in result.stderr
