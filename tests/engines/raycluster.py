"""A real Ray cluster of several nodes on this machine, for tests.

`python -m tests.engines.raycluster PORT` starts the head, which has no cores and takes jobs at that port, and prints
its address; then it obeys lines on standard input: `add IP CORES [GPUS]`, `kill IP`. It answers each with one line, and
ends with its standard input.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from tests.conftest import REPOSITORY
from tests.engines.virtual_slurm import free_ports

HEAD = "127.0.0.2"
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
OBJECT_STORE_BYTES = 80 << 20


class Nodes:
    """The cluster, seen from a test: in a process of its own, so that the test's stays clean."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets below it need a short name
        self.environment = {**os.environ, **SETTINGS, "RAY_TMPDIR": self._directory, "PYTHONPATH": str(REPOSITORY)}
        (port,) = free_ports(1)
        self.jobs = f"http://127.0.0.1:{port}"
        """Where jobs are submitted to."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.raycluster", str(port)],
            env=self.environment,
            cwd="/",  # whatever a process finds on a node, it did not find in the current directory
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._answer()

    def add(self, ip: str, cores: int, gpus: int = 0) -> None:
        self._ask(f"add {ip} {cores} {gpus}")

    def kill(self, ip: str) -> None:
        """The node is gone, as if someone had pulled its plug."""
        self._ask(f"kill {ip}")

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster has ended"
        return line

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            shutil.rmtree(self._directory, ignore_errors=True)


def serve() -> None:
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Ray prints is no answer
    common: dict[str, Any] = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    jobs = {"include_dashboard": True, "dashboard_host": "127.0.0.1", "dashboard_port": int(sys.argv[1])}
    head = {**common, **jobs, "num_cpus": 0, "node_ip_address": HEAD}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: dict[str, Any] = {HEAD: cluster.head_node}
    print(cluster.address, file=answers, flush=True)
    for line in sys.stdin:
        word, ip, *numbers = line.split()
        if word == "add":
            cores, gpus = map(int, numbers)
            nodes[ip] = cluster.add_node(**common, num_cpus=cores, num_gpus=gpus, node_ip_address=ip)
        else:
            cluster.remove_node(nodes.pop(ip), allow_graceful=False)
        print("done", file=answers, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    serve()
