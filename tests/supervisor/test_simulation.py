"""Thousands of random schedules of deaths, stalls, late messages and resizes, in seconds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.simulation import Simulation


@pytest.mark.parametrize("block", range(10))
def test_random_schedules_keep_the_invariants_and_finish(block: int) -> None:
    for seed in range(block * 200, (block + 1) * 200):
        run(seed)


def run(seed: int, **options: Any) -> Simulation:
    simulation = Simulation(seed, **{"workers": 1 + seed % 5, "leaves": 8, "last": 6, "failures": seed % 7, **options})
    try:
        simulation.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return simulation


def test_members_that_cannot_reach_each_other_part_and_the_job_finishes() -> None:
    for seed in range(500):
        run(seed, cuts=1 + seed % 3, workers=2 + seed % 4)


def test_hosts_come_and_go() -> None:
    """With deaths, stalls and cut links on the way; also when nobody is left for a while."""
    for seed in range(250):
        simulation = run(seed, hosts=True, workers=seed % 4, failures=2 + seed % 7, cuts=seed % 2)
        assert simulation.machine.num_workers <= min(simulation.room, simulation.leaves)


def least(seed: int) -> dict[str, Any]:
    """Training goes on with so many workers, and not all find room at once."""
    workers = 1 + seed % 5
    return {"workers": workers, "min_workers": seed // 5 % (workers + 1), "has_room": False}


def test_a_job_that_waits_for_others_goes_on_when_they_come() -> None:
    """Also when it is resized meanwhile."""
    for seed in range(500):
        run(seed, **least(seed))


def test_a_stop_ends_a_job_also_when_it_waits_for_others() -> None:
    num_waiting = 0
    for seed in range(400):
        simulation = Simulation(seed, leaves=8, last=6, failures=seed % 7, **least(seed))
        for _ in range(seed):
            simulation.event()
        machine = simulation.machine
        num_waiting += machine.outcome is None and bool(machine.members) and machine.has_too_few
        simulation.stop()
    assert num_waiting > 5


@pytest.mark.parametrize("options", [{}, {"servers": 2}, {"hosts": True}, {"verify_every": 2}])
def test_a_stop_ends_a_job_also_when_everyone_dies_and_others_find_no_room(options: dict[str, Any]) -> None:
    """Without a second one; with the checkpoint that was asked for, if someone lived to write it."""
    written = []
    for seed in range(400):
        simulation = Simulation(seed, leaves=8, last=6, failures=seed % 3, **least(seed), **options)
        for _ in range(seed):
            simulation.event()
        try:
            simulation.stop(failures=1000)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert simulation.machine.outcome is not None
        written.append(simulation.machine.outcome.digest is not None)
    assert 20 < sum(written) < 380


def test_servers_come_and_go_like_workers() -> None:
    """F53: a server that dies takes nothing with it."""
    for seed in range(250):
        simulation = run(seed, servers=1 + seed % 3)
        assert any(generation.servers for generation in simulation.generations)


def test_late_leaves_are_computed_by_others_and_stragglers_find_their_way_back() -> None:
    """F55: with deaths of workers and servers on the way."""
    simulations = [run(seed, servers=1 + seed % 3, workers=2 + seed % 4, last=12, backup=True) for seed in range(250)]
    assert sum(simulation.taken for simulation in simulations) > 250
    assert sum(simulation.outruns for simulation in simulations) > 20


def test_verifying_changes_nothing_when_nothing_is_wrong() -> None:
    for seed in range(300):
        simulation = Simulation(seed, workers=1 + seed % 5, leaves=8, last=6, failures=seed % 7, verify_every=2)
        simulation.flip_at = None
        simulation.run()
        assert not any(generation.goes_back for generation in simulation.generations)


def test_a_flipped_bit_never_reaches_the_end() -> None:
    """The run goes back to what was verified, whatever else happens, and ends on the right state."""
    rollbacks = sum(
        run(seed, workers=2 + seed % 4, last=8, verify_every=1 + seed % 4).rollbacks for seed in range(1000)
    )
    assert rollbacks > 800


def test_rounds_of_several_steps_keep_the_invariants() -> None:
    """Members are at most a round apart, and whoever is behind gets its result; the last round is cut short."""
    behind = 0
    for seed in range(400):
        simulation = run(seed, last=2 + seed % 18, local_steps=4)
        behind += sum(len(generation.behind) for generation in simulation.generations)
    assert behind > 10
    for seed in range(200):
        run(seed, workers=2 + seed % 4, last=14, verify_every=1 + seed % 6, local_steps=4)


def test_without_failures_nothing_is_computed_twice() -> None:
    for seed in range(20):
        simulation = Simulation(seed, workers=3, leaves=8, last=6, failures=0)
        simulation.run()
        assert simulation.recomputed == 8 * 6


def test_a_death_costs_at_most_the_leaves_of_the_dead() -> None:
    """One failure of one worker: what is computed beyond the plan is what the dead one held or was computing."""
    for seed in range(200):
        simulation = Simulation(seed, workers=4, leaves=8, last=6, failures=0)
        for _ in range(200 + seed):
            simulation.event()
        members = simulation.machine.members
        if simulation.machine.outcome is not None or not members:
            continue
        victim = simulation.models.pop(members[seed % len(members)])
        lost = len(victim.computed) + (victim.computing is not None)
        simulation.perform(simulation.machine.handle(e_gone(victim.id)))
        simulation.run()
        assert simulation.recomputed <= 8 * 6 + lost + len(members), seed


def e_gone(worker: int):  # type: ignore[no-untyped-def]
    from lockstep.supervisor.events import Gone

    return Gone(worker, "died", is_death=True)
