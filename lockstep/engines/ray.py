"""Processes on a Ray cluster: an actor holds the resources of each, starts it, and says how it ended.

Ray places actors, carries the code to the nodes and tells who died; vectors never go through it. What an actor does on
its node is in `keeper`, what travels there in `luggage`. The only file that imports ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lockstep import host
from lockstep.engines import Command, OnExit, Role, Site, luggage, needs
from lockstep.engines.keeper import Keeper, Order
from lockstep.engines.local import describe_status
from lockstep.engines.local import is_death as is_a_death
from lockstep.errors import UserError

CONNECT_SECONDS = 5.0
NOTE_SECONDS = 10.0
"""How long anything may take before a line says what it waits for."""
KILL_SECONDS = 3.0
"""How long an actor may take to end its process; then it goes itself, and the process with it."""
RETRY_SECONDS = 0.2
RELEASE_SECONDS = 5.0
"""How long the room of a process that is gone is kept for its replacement."""
OBJECT_STORE_BYTES = 128 << 20
"""Of a cluster of our own, which stores no objects."""
STRATEGY = {"any": "PACK", "pack": "PACK", "spread": "SPREAD"}


@dataclass(eq=False)
class Bundle:
    """Room for one process."""

    group: PlacementGroup
    index: int
    role: Role


@dataclass(eq=False)
class Process:
    command: Command
    bundle: Bundle
    actor: Any
    node: str = ""
    """The address of the node it runs on; empty as long as it waits for room."""
    node_id: str = ""
    has_room: bool = True
    """Until its bundle is another's."""
    has_ended: bool = False
    is_killed: bool = False
    has_noted: bool = False


class Actor(Keeper):
    async def where(self) -> tuple[str, str]:
        """The address and the identity of the node."""
        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()


class Ray:
    assigns_devices = True

    def __init__(self, site: Site) -> None:
        self.host = "127.0.0.1"
        self._site = site
        self._directory = str(Path.cwd())
        """Now, since that of a submitted job is Ray's, which may delete it while the job goes on."""
        self._groups: list[PlacementGroup] = []
        """The first one holds all that must fit at once, the others one process each."""
        self._free: list[Bundle] = []
        self._processes: dict[int, Process] = {}
        self._unwanted: set[int] = set()
        """Killed before they were there."""
        self._followers: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_noted = False
        self._remote: Any = ray.remote(Actor)

    async def open(self) -> None:
        joining = asyncio.create_task(asyncio.to_thread(self._join))
        if not (await asyncio.wait({joining}, timeout=NOTE_SECONDS))[0]:
            self._site.note(needs.describe_delay(self._address))
        await joining
        roles = needs.first_roles(self._site)
        group = placement_group([needs.resources(role, self._site) for role in roles], STRATEGY[self._site.placement])
        self._groups.append(group)
        self._free += [Bundle(group, index, role) for index, role in enumerate(roles)]

    @property
    def _address(self) -> str | None:
        return self._site.address or os.environ.get("RAY_ADDRESS") or None

    def _join(self) -> None:
        """Join the cluster that was named, or that Ray knows of; without one, start one that ends with this job."""
        address = self._address
        if address not in (None, "auto", "local"):
            check_address(address)
        try:
            with tempfile.TemporaryDirectory(prefix="lockstep-") as stage:
                packages = [str(path) for path in luggage.pack(self._site.files, Path(stage))]
                self._connect(address, luggage.runtime_env(packages))
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(needs.describe_failure(address, error)) from None

    def _connect(self, address: str | None, runtime_env: dict[str, Any]) -> None:
        given = {"runtime_env": runtime_env, "log_to_driver": False, "logging_level": logging.ERROR}
        if address in (None, "local"):
            try:
                ray.init(address, **self._own_cluster(), **given)
                return
            except ValueError as error:  # how Ray says that it has found one
                if address == "local" or "existing cluster" not in str(error):
                    raise
        self.host = ray.init(address, **given).address_info["node_ip_address"]
        nodes = needs.count(sum(node["Alive"] for node in ray.nodes()), "node")
        self._site.note(
            f"joined a Ray cluster of {nodes} with {needs.describe_resources(ray.cluster_resources())}; "
            f"the run directory, with the logs of all processes, is on {self.host} ({socket.gethostname()})"
        )

    def _own_cluster(self) -> dict[str, Any]:
        """What it calls cores are as many as the job needs: like the local engine, it leaves the rest to the kernel."""
        needed = sum(needs.resources(role, self._site).get("CPU", 0) for role in needs.all_roles(self._site))
        cores = max(host.count_cores(), int(needed))
        return {"num_cpus": cores, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}

    # Processes

    async def start(self, command: Command, on_exit: OnExit) -> None:
        if command.id in self._unwanted:
            return
        process = self._place(command)
        self._processes[command.id] = process
        try:
            await self._begin(process)
        except RayActorError:
            self._release(process)
            if not process.is_killed:
                on_exit(command.id, "was lost with its Ray actor before it began", True)
            return
        except RayError as error:
            self._release(process)
            raise OSError(needs.first_line(error)) from None
        except OSError:
            self._release(process)
            raise
        follower = asyncio.create_task(self._follow(process, on_exit))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)

    def _place(self, command: Command) -> Process:
        """An actor in a bundle that is free, or in one of its own."""
        role = command.role
        bundle = next((one for one in self._free if one.role == role), None)
        if bundle is not None:
            self._free.remove(bundle)
        else:
            bundle = Bundle(placement_group([needs.resources(role, self._site)]), 0, role)
            self._groups.append(bundle.group)
        asked = needs.resources(role, self._site)
        actor = self._remote.options(
            num_cpus=asked.get("CPU", 0),
            num_gpus=asked.get("GPU", 0),
            memory=asked.get("memory"),
            scheduling_strategy=PlacementGroupSchedulingStrategy(bundle.group, bundle.index),
        ).remote()
        return Process(command, bundle, actor)

    async def _begin(self, process: Process) -> None:
        """Returns when there was room and the process runs."""
        order = Order(
            arguments=process.command.arguments,
            environment={**luggage.variables(), **self._devices(process.command.role), **process.command.environment},
            python=sys.executable,
            directory=self._directory,
            files=[str(directory) for directory in self._site.files],
        )
        started = asyncio.ensure_future(_result(process.actor.start.remote(order)))
        while not (await asyncio.wait({started}, timeout=NOTE_SECONDS))[0]:
            await self._explain(process)
        started.result()
        process.node, process.node_id = await process.actor.where.remote()
        process.command.log.parent.mkdir(parents=True, exist_ok=True)
        _append(process.command.log, f"lockstep: on node {process.node}\n".encode())

    def _devices(self, role: Role) -> dict[str, str]:
        """Ray gives a process its GPU, and hides the others from one that asked for none only in some versions."""
        return {} if "GPU" in needs.resources(role, self._site) else {"CUDA_VISIBLE_DEVICES": ""}

    async def _explain(self, process: Process) -> None:
        """Say once, and once more for every replacement, that there is no room."""
        table, has, free = await asyncio.to_thread(
            lambda: (placement_group_table(process.bundle.group), ray.cluster_resources(), ray.available_resources())
        )
        if table["state"] == "CREATED" or process.is_killed:
            return
        cluster = (
            f"the Ray cluster has {needs.describe_resources(has)}, of which {needs.describe_resources(free)} are free"
        )
        if process.bundle.group is self._groups[0] and table["state"] == "PENDING":
            if not self._has_noted:
                self._site.note(
                    f"waiting for room for {needs.describe_first(self._site)}: {cluster}; {needs.hint(self._site)}"
                )
            self._has_noted = True
        elif not process.has_noted:
            process.has_noted = True
            role, id_ = process.command.role, process.command.id
            asked = needs.describe_resources(needs.resources(role, self._site))
            self._site.note(f"{role} {id_} waits for room ({asked}): {cluster}; the others go on without it")

    async def _follow(self, process: Process, on_exit: OnExit) -> None:
        """Write what the process writes to its log, until it or its actor is gone."""
        position = 0
        while True:
            try:
                first, chunk, status = await process.actor.read.remote(position)
            except ActorUnavailableError:
                if await asyncio.to_thread(is_reachable, process.node_id):
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                how, is_death = f"was lost with its node {process.node}", True
                break
            except RayError as error:
                _append(process.command.log, f"lockstep: {error}\n".encode())
                is_there = await asyncio.to_thread(is_reachable, process.node_id)
                lost_with = "Ray actor on" if is_there else "node"
                how, is_death = f"was lost with its {lost_with} {process.node}", True
                break
            lost = f"\n[{first - position} bytes are lost]\n".encode() if first > position else b""
            _append(process.command.log, lost + chunk)
            position = first + len(chunk)
            if status is not None:
                how, is_death = f"{describe_status(status)} on node {process.node}", is_a_death(status)
                break
        process.has_ended = True
        if process.is_killed and how.startswith("was lost with its node"):
            self._site.note(f"{process.command.role} {process.command.id} {how}")
        self._release(process)
        ray.kill(process.actor)
        on_exit(process.command.id, how, is_death)

    def kill(self, id_: int) -> None:
        process = self._processes.get(id_)
        if process is None:
            self._unwanted.add(id_)
        elif not process.has_ended and not process.is_killed:
            process.is_killed = True
            self._release(process)
            self._spawn(self._end(process))

    async def _end(self, process: Process) -> None:
        if process.node:
            with contextlib.suppress(RayError, TimeoutError):
                await asyncio.wait_for(_result(process.actor.kill.remote()), KILL_SECONDS)
        ray.kill(process.actor)

    # Room

    def _release(self, process: Process) -> None:
        """Keep the room for a replacement, which comes at once if it comes. Ray finds another place for it if its node
        is lost, when there is one."""
        bundle = process.bundle
        if process.has_room:
            process.has_room = False
            self._free.insert(0, bundle)
            if bundle.group is not self._groups[0]:
                asyncio.get_running_loop().call_later(RELEASE_SECONDS, self._give_back, bundle)

    def _give_back(self, bundle: Bundle) -> None:
        if bundle in self._free and ray.is_initialized():
            self._free.remove(bundle)
            self._groups.remove(bundle.group)
            remove_placement_group(bundle.group)

    # The end

    async def close(self, grace_seconds: float) -> None:
        if not ray.is_initialized():
            return
        if self._followers:
            await asyncio.wait(list(self._followers), timeout=grace_seconds)
        for id_ in self._processes:
            self.kill(id_)
        if rest := [*self._followers, *self._tasks]:
            await asyncio.wait(rest, timeout=grace_seconds)
        for group in self._groups:
            remove_placement_group(group)
        await asyncio.to_thread(ray.shutdown)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _result(reference: Any) -> Any:
    return await reference


def _append(log: Path, chunk: bytes) -> None:
    """A log that cannot be written ends no training."""
    with contextlib.suppress(OSError), log.open("ab") as file:
        file.write(chunk)


# The cluster


def check_address(address: str) -> None:
    """Ray itself would try for long, or end this process."""
    host_name, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdigit():
        raise UserError(
            "--address takes HOST:PORT of the head of a Ray cluster, such as 10.0.0.1:6379, auto for a running one, or "
            f"local for one of its own, not {address!r}"
        )
    try:
        socket.create_connection((host_name, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(
            f"no Ray cluster answers at {address} ({why}): look with `ray status --address {address}`, or leave "
            "--address out for one on this host"
        ) from None


def is_reachable(node_id: str) -> bool:
    """Whether anyone listens where Ray's own process on a node does: Ray waits much longer before it gives it up."""
    node = next((node for node in ray.nodes() if node["NodeID"] == node_id and node["Alive"]), None)
    if node is None:
        return False
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
