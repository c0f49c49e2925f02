"""What a job asks of a cluster, and how users hear of it."""

from __future__ import annotations

import pytest

from lockstep import engines
from lockstep.engines import Site, needs
from lockstep.errors import UserError


def test_what_must_fit_at_once() -> None:
    site = Site(num_workers=4, num_servers=2, evaluator="own")
    assert needs.first_roles(site) == ["worker"] * 4 + ["server"] * 2 + ["evaluator"]
    site = Site(num_workers=4, num_servers=1, min_workers=2)
    assert needs.first_roles(site) == ["worker", "worker", "server"]


def test_one_gpu_each_and_the_cores_of_the_threads() -> None:
    """F60: servers compute on no device, and fit where all cores are taken."""
    site = Site(num_workers=2, threads=3, uses_gpus=True)
    assert needs.resources("worker", site) == {"CPU": 3, "GPU": 1}
    assert needs.resources("evaluator", site) == {"CPU": 3, "GPU": 1}
    assert needs.resources("server", site).keys() == {"memory"}
    assert needs.resources("worker", Site(num_workers=2, threads=3, cpus_per_worker=8)) == {"CPU": 8}


def test_what_is_waited_for_is_said_in_words() -> None:
    site = Site(num_workers=4, num_servers=1, threads=2, uses_gpus=True)
    assert needs.describe_first(site) == "4 workers of 2 cores and 1 GPU and 1 server"
    assert "--min-workers" in needs.hint(site)
    assert "--min-workers" not in needs.hint(Site(num_workers=4, min_workers=1))


def test_a_host_outside_the_cluster_hears_what_to_do() -> None:
    error = ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")
    error.__cause__ = RuntimeError("No node info found matching attributes: '' when trying to resolve node")
    assert "ray start --address" in needs.describe_failure("10.0.0.1:6379", error)
    assert "must be a node" in needs.describe_delay("10.0.0.1:6379")
    assert "must be a node" not in needs.describe_delay("local") + needs.describe_delay(None)
    assert "Version mismatch" in needs.describe_failure("10.0.0.1:6379", RuntimeError("Version mismatch: 2.1\nmore"))


def test_without_the_package_one_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'lockstep-train\[ray\]'"):
        engines.check_engine("ray")
    engines.check_engine("local")


def test_placement_belongs_to_ray() -> None:
    with pytest.raises(UserError, match="it belongs to --engine ray"):
        engines.check_engine("local", ["placement"])
