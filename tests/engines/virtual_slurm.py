"""A Slurm cluster of several virtual nodes on this host: real munged, slurmctld and slurmds, all in one directory.

All nodes have the same hostname and address; a port of its own tells each from the others.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "salloc", "squeue", "scontrol", "sinfo", "scancel")
CPUS_PER_NODE = 2
GPUS_PER_NODE = 2

CONF = """\
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock,cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=6
MessageTimeout=5
TCPTimeout=2
KillWait=5
{nodes}
PartitionName=usual Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=n1 MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} CoresPerSocket={cpus} "
    "RealMemory=4000 Gres=gpu:{gpus}"
)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited for {seconds} s: {what}"
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Cluster:
    def __init__(self, root: Path, num_nodes: int) -> None:
        self.root = root
        self.conf = root / "slurm.conf"
        self.nodes = [f"n{number}" for number in range(1, num_nodes + 1)]
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        root = self.root
        host, (port, *ports) = socket.gethostname(), free_ports(1 + len(self.nodes))
        (root / "state").mkdir()
        (root / "munge.key").write_bytes(secrets.token_bytes(128))
        (root / "munge.key").chmod(0o400)
        for number in range(GPUS_PER_NODE):
            os.mknod(root / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        (root / "gres.conf").write_text(f"Name=gpu File={root}/gpu[0-{GPUS_PER_NODE - 1}]\n")
        sizes = {"cpus": CPUS_PER_NODE, "gpus": GPUS_PER_NODE}
        lines = [
            NODE.format(name=name, host=host, port=own, **sizes) for name, own in zip(self.nodes, ports, strict=True)
        ]
        self.conf.write_text(CONF.format(host=host, port=port, root=root, nodes="\n".join(lines)))
        files = [f"--{one}-file={root}/munge.{one}" for one in ("key", "pid", "log", "seed")]
        self._run("munged", "munged", "--foreground", "--force", f"--socket={root}/munge.sock", *files)
        wait_until((root / "munge.sock").exists, "munged")
        self._run("slurmctld", "slurmctld", "-D", "-i")
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: self.states().count("idle") == len(self.nodes), "idle nodes")

    def start_node(self, node: str) -> None:
        self._run(node, "slurmd", "-D", "-N", node)

    def _run(self, name: str, *command: str) -> None:
        with (self.root / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def call(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        return done.stdout

    def allocate(self, num_nodes: int) -> dict[str, str]:
        """An allocation with all CPUs and GPUs of so many nodes; the variables of a process in it."""
        asked = [f"--nodes={num_nodes}", f"--ntasks-per-node={CPUS_PER_NODE}", f"--gpus-per-node={GPUS_PER_NODE}"]
        command = ["salloc", "--no-shell", "--no-kill", *asked]
        made = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        match = re.search(r"Granted job allocation (\d+)", made.stderr)
        assert match is not None, made.stderr
        return {
            "SLURM_CONF": str(self.conf),
            "SLURM_JOB_ID": match[1],
            "SLURM_JOB_NODELIST": self.call("squeue", "--noheader", f"--jobs={match[1]}", "--format=%N").strip(),
            "SLURM_JOB_CPUS_PER_NODE": f"{CPUS_PER_NODE}(x{num_nodes})",
            "SLURM_GPUS_ON_NODE": str(GPUS_PER_NODE),
        }

    def states(self) -> list[str]:
        return self.call("sinfo", "--noheader", "--Node", "--partition=usual", "--format=%T").split()

    def state(self, job: str) -> str:
        return self.call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    def steps(self, job: str) -> dict[str, tuple[str, str]]:
        """Number and node of every step, by the first part of its name."""
        rows = self.call("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i %j %N").splitlines()
        return {name.split(".")[0]: (number, node) for number, name, node in map(str.split, rows)}

    def kill_node(self, node: str, is_noticed: bool = False) -> None:
        """As if its power were cut: its slurmd, and every process of a job on it. Slurm needs some seconds to see that
        by itself, unless someone tells it."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        self._kill(self.processes(SLURMD_NODENAME=node))
        if is_noticed:
            self.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")

    def processes(self, **variables: str) -> list[psutil.Process]:
        """Processes of jobs of this cluster with these variables in their environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                if environment.get("SLURM_CONF") == str(self.conf) and variables.items() <= environment.items():
                    found.append(process)
        return found

    def _kill(self, processes: list[psutil.Process]) -> None:
        """These, and the slurmstepds above them, all at once: none may act on the death of another.

        Children go first: the kernel wakes a stopped process whose parent dies.
        """
        depths: dict[psutil.Process, int] = {}
        for process in processes:
            with contextlib.suppress(psutil.Error):
                above = process.parents()
                depths[process] = len(above)
                depths |= {one: 0 for one in above if one.name().startswith("slurmstepd")}
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for process in sorted(depths, key=lambda one: -depths[one]):
                with contextlib.suppress(psutil.Error):
                    act(process)

    def stop(self) -> None:
        self.call("scancel", "--signal=KILL", "--full", *self.call("squeue", "--noheader", "--format=%i").split())
        for daemon in reversed(self._daemons.values()):
            daemon.kill()
            daemon.wait()
        for node in self.nodes:
            self._kill(self.processes(SLURMD_NODENAME=node))


def missing() -> str | None:
    """Why there can be no cluster here."""
    if os.geteuid() != 0:
        return "several nodes on one host need root"
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"needs Debian's slurmctld, slurmd, slurm-client and munge ({', '.join(lacking)})" if lacking else None
