"""What a job asks of a Ray cluster, and what users are told about that. Pure; `ray` does the asking."""

from __future__ import annotations

from lockstep.engines import Role, Site

SERVER_BYTES = 64 << 20
"""Servers ask for memory alone, so that they fit where workers have taken all cores: they mostly wait."""


def all_roles(site: Site) -> list[Role]:
    workers: list[Role] = ["worker"] * site.num_workers
    servers: list[Role] = ["server"] * site.num_servers
    return [*workers, *servers, *([] if site.evaluator == "none" else ["evaluator"])]  # type: ignore[list-item]


def first_roles(site: Site) -> list[Role]:
    """Those that must fit at once."""
    least = site.num_workers if site.min_workers is None else site.min_workers
    return all_roles(site)[site.num_workers - least :]


def resources(role: Role, site: Site) -> dict[str, float]:
    """In the words of Ray."""
    if role == "server":
        return {"memory": SERVER_BYTES}
    return {"CPU": site.cpus_per_worker or site.threads, **({"GPU": 1} if site.uses_gpus else {})}


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def describe_resources(found: dict[str, float]) -> str:
    """Cores and GPUs, which is what users count in."""
    parts = [count(int(found.get("CPU", 0)), "core"), *([count(int(found["GPU"]), "GPU")] if found.get("GPU") else [])]
    return " and ".join(parts)


def describe_first(site: Site) -> str:
    """What must fit at once, in words."""
    roles, each = first_roles(site), describe_resources(resources("worker", site))
    workers = f"{count(roles.count('worker'), 'worker')} of {each}"
    evaluator = ["an evaluator of the same"] if "evaluator" in roles else []
    servers = [count(roles.count("server"), "server")] if "server" in roles else []
    return " and ".join([workers, *evaluator, *servers])


def hint(site: Site) -> str:
    if site.num_workers > 1 and site.min_workers is None:
        return "training begins when there is room, and at once with --min-workers or fewer --workers"
    return "training begins when there is room"


def describe_delay(address: str | None) -> str:
    """A cluster of our own is only slow to start; of another one this host may be no part."""
    if address in (None, "local"):
        return "Ray takes its time to start; a busy machine needs longer"
    return "Ray does not answer yet; this host must be a node of the cluster (`ray status` tells)"


def describe_failure(address: str | None, error: Exception) -> str:
    causes = [error, *([error.__cause__] if error.__cause__ is not None else [])]
    if any("No node info found" in str(cause) for cause in causes):
        return (
            "this host is not a node of that Ray cluster: run `ray start --address=HOST:PORT` here first, or send the "
            "job to it with `ray job submit -- lockstep train ...`"
        )
    why = first_line(causes[-1])
    if address == "local":
        return f"a Ray cluster on this host could not be started: {why}"
    what = f"the Ray cluster at {address}" if address not in (None, "auto") else "a Ray cluster on this host"
    return f"{what} could not be joined ({why}): `ray stop` forgets a dead one, --address local starts one"


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
