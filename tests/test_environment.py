"""What launchers say in the environment, as a table: variables in, the place of the process or one sentence out."""

from __future__ import annotations

import pytest

from lockstep.environment import FIRST_PORT, NUM_PORTS, WAIT_SECONDS, Place, count_workers, first_host, place
from lockstep.errors import UserError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMIX_NAMESPACE": "123.1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "MASTER_PORT": "4000"}
SRUN = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NODELIST": "gpu[07-09]",
}
PLAIN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "job-0.job", "MASTER_PORT": "23456"}
INDEXED = {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "job-0.job", "MASTER_PORT": "23456"}
ONE_NODE = {"SLURM_STEP_NUM_NODES": "1"}


def without(variables: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in names}


@pytest.mark.parametrize(
    ("variables", "launcher", "rank", "world", "local_rank", "address"),
    [
        (TORCHRUN, "torchrun", 3, 4, 1, "node1"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"}, "torchrun", 3, 4, 1, "127.0.0.1"),
        (OPEN_MPI, "Open MPI's mpirun", 1, 2, 1, "127.0.0.1"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "h"}, "Open MPI's mpirun", 1, 2, 1, "h"),
        ({**OPEN_MPI, "RANK": "1", "WORLD_SIZE": "2"}, "Open MPI's mpirun", 1, 2, 1, "127.0.0.1"),
        (MPICH, "MPICH's mpiexec", 1, 2, 1, "127.0.0.1"),
        (SRUN, "srun", 5, 6, 1, "gpu07"),
        ({**SRUN, **ONE_NODE}, "srun", 5, 6, 1, "127.0.0.1"),
        ({**SRUN, "MASTER_ADDR": "10.0.0.7"}, "srun", 5, 6, 1, "10.0.0.7"),
        ({**SRUN, "PMI_RANK": "5", "PMI_SIZE": "6"}, "srun", 5, 6, 1, "gpu07"),
        (PLAIN, "whoever set RANK", 1, 3, 0, "job-0.job"),
        ({**PLAIN, "MASTER_ADDR": "localhost"}, "whoever set RANK", 1, 3, 1, "127.0.0.1"),
        ({**PLAIN, "MASTER_ADDR": "::1"}, "whoever set RANK", 1, 3, 1, "127.0.0.1"),
        ({**PLAIN, "LOCAL_RANK": "2"}, "whoever set RANK", 1, 3, 2, "job-0.job"),
        (
            {**PLAIN, "MASTER_ADDR": "localhost", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            *("whoever set RANK", 1, 3, 0, "localhost"),
        ),
        (INDEXED, "an indexed Job of Kubernetes", 2, 3, 0, "job-0.job"),
        # The inner one counts where one launcher starts another.
        ({**SRUN, **TORCHRUN}, "torchrun", 3, 4, 1, "node1"),
        ({**OPEN_MPI, **TORCHRUN}, "torchrun", 3, 4, 1, "node1"),
        ({**SRUN, **OPEN_MPI}, "Open MPI's mpirun", 1, 2, 1, "127.0.0.1"),
        ({**SRUN, **MPICH}, "MPICH's mpiexec", 1, 2, 1, "127.0.0.1"),
        ({**INDEXED, **PLAIN}, "whoever set RANK", 1, 3, 0, "job-0.job"),
        ({**INDEXED, **TORCHRUN}, "torchrun", 3, 4, 1, "node1"),
    ],
)
def test_a_launcher_tells_a_process_its_place(
    variables: dict[str, str], launcher: str, rank: int, world: int, local_rank: int, address: str
) -> None:
    found = place(variables)
    shown = (found.launcher, found.rank, found.world, found.local_rank, found.address)
    assert shown == (launcher, rank, world, local_rank, address)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ["torchrun --nproc-per-node 2", "leave --engine env out"]),
        ({"SLURM_JOB_ID": "17", "SLURM_PROCID": "0"}, ["SLURM_STEP_ID"]),  # a batch script without srun
        ({**PLAIN, "RANK": "3"}, ["RANK=3", "WORLD_SIZE=3", "0 to"]),
        ({**PLAIN, "WORLD_SIZE": "0"}, ["WORLD_SIZE=0"]),
        ({**PLAIN, "RANK": "-1"}, ["RANK='-1'", "no whole number"]),
        ({**PLAIN, "WORLD_SIZE": "many"}, ["WORLD_SIZE='many'"]),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "x"}, ["OMPI_COMM_WORLD_LOCAL_RANK='x'"]),
        (without(PLAIN, "WORLD_SIZE"), ["RANK is set", "WORLD_SIZE is not"]),
        (without(PLAIN, "MASTER_PORT"), ["RANK is set", "MASTER_PORT is not"]),
        (without(PLAIN, "MASTER_ADDR"), ["MASTER_ADDR", "several hosts"]),
        (without(INDEXED, "WORLD_SIZE"), ["JOB_COMPLETION_INDEX is set", "WORLD_SIZE is not", "template"]),
        (without(MPICH, "MASTER_PORT"), ["MASTER_PORT", "mpiexec -genv"]),
        ({**PLAIN, "MASTER_PORT": "70000"}, ["MASTER_PORT=70000"]),
        ({**PLAIN, "LOCAL_WORLD_SIZE": "4"}, ["LOCAL_WORLD_SIZE=4", "WORLD_SIZE=3"]),
        ({**OPEN_MPI, "RANK": "0"}, ["RANK=0", "OMPI_COMM_WORLD_RANK=1", "contradict"]),
        ({**SRUN, "WORLD_SIZE": "2"}, ["WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=6", "contradict"]),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ["MASTER_ADDR", "OMPI_COMM_WORLD_SIZE=2", "mpirun -x"]),
        ({**PLAIN, "LOCKSTEP_WAIT": "soon"}, ["LOCKSTEP_WAIT='soon'"]),
        ({**PLAIN, "LOCKSTEP_WAIT": "0"}, ["LOCKSTEP_WAIT='0'"]),
    ],
)
def test_contradictions_are_one_sentence_that_names_the_variables(variables: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        place(variables)
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == [], caught.value


def test_torchruns_store_has_the_port_unless_it_is_not_shared() -> None:
    assert place(TORCHRUN).has_store
    assert not place({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}).has_store
    assert not place(PLAIN).has_store


def test_a_port_is_taken_from_the_job_where_none_is_given() -> None:
    """The same for all of its ranks, another one for another job."""
    ports = [place({**SRUN, "SLURM_PROCID": str(rank)}).port for rank in range(6)]
    assert len(set(ports)) == 1
    assert FIRST_PORT <= ports[0] < FIRST_PORT + NUM_PORTS
    assert place({**SRUN, "SLURM_STEP_ID": "1"}).port != ports[0]
    assert place({**SRUN, "MASTER_PORT": "4321"}).port == 4321


def test_the_token_is_the_users_or_that_of_the_job() -> None:
    """All ranks have the same one; it is not shown."""
    tokens = [place({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": rank}).token for rank in "01"]
    assert tokens[0] == tokens[1] != place({**OPEN_MPI, "PMIX_NAMESPACE": "124.1"}).token
    own = place({**OPEN_MPI, "LOCKSTEP_TOKEN": "secret"})
    assert own.token == "secret"
    assert "secret" not in repr(own)


def test_rank_0_in_a_pod_may_know_itself_by_another_name() -> None:
    """Some operators tell rank 0 `localhost` and the others the name of a service."""
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    first, other = place({**PLAIN, **inside, "MASTER_ADDR": "localhost"}), place({**PLAIN, **inside})
    assert not first.is_one_host
    assert first.token == other.token


def test_only_launchers_that_ask_all_ranks_to_end_are_left_to_rank_0() -> None:
    assert [place(one).tells_all for one in (TORCHRUN, OPEN_MPI, MPICH, SRUN, PLAIN, INDEXED)] == [True] * 4 + [
        False
    ] * 2


def test_waiting_can_be_set() -> None:
    assert place(PLAIN).wait_seconds == WAIT_SECONDS
    assert place({**PLAIN, "LOCKSTEP_WAIT": "0.5"}).wait_seconds == 0.5


def world(size: int) -> Place:
    return place({**PLAIN, "RANK": "0", "WORLD_SIZE": str(size)})


def test_all_ranks_but_the_servers_are_workers() -> None:
    assert count_workers(world(3), 0, None) == 3
    assert count_workers(world(3), 1, 2) == 2
    with pytest.raises(UserError, match=r"WORLD_SIZE=3 .* 1 of them servers, are 2 workers, and not --workers 3"):
        count_workers(world(3), 1, 3)
    with pytest.raises(UserError, match=r"WORLD_SIZE=2 and --servers 2 leave no worker"):
        count_workers(world(2), 2, None)


@pytest.mark.parametrize(
    ("listing", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-3,7],m2", "n1"),
        ("gpu[007-012]", "gpu007"),
        ("rack[0-1]-n[08-11],other", "rack0-n08"),
        ("n[3].cluster.example", "n3.cluster.example"),
    ],
)
def test_the_first_host_of_a_list_of_slurm(listing: str, first: str) -> None:
    assert first_host(listing) == first
