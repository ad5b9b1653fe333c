"""What is said of a machine, on machines that have it and such that have not."""

import json
import os
import sys
from pathlib import Path

import pytest
from mounted import needs_mounts, run_mounted

from hvd_adaptive.doctor import machine

MIB = 2**20
GIB = 2**30


@pytest.mark.parametrize(("version", "status"), [((3, 9), "warning"), ((3, 10), "ok"), ((3, 12), "ok"), ((3, 13), "warning")])
def test_pythons_that_horovod_builds_with(version: tuple[int, int], status: str) -> None:
    assert machine.python(version, "python").status == status


def test_what_docker_gives_by_default_is_too_little_shared_memory() -> None:
    found = machine.shared_memory(64 * MIB, 2)
    assert found.status == "warning"
    assert "64 MiB" in found.found
    assert "--shm-size=1g" in found.advice


@pytest.mark.parametrize(("size", "ranks", "status"), [(GIB, 8, "ok"), (GIB, 64, "ok"), (GIB, 65, "warning"), (0, 1, "warning")])
def test_shared_memory_is_enough_for_so_many_ranks(size: int, ranks: int, status: str) -> None:
    assert machine.shared_memory(size, ranks).status == status


@needs_mounts
def test_a_small_dev_shm_is_found(tmp_path: Path) -> None:
    program = (
        "import json; from hvd_adaptive.doctor import machine; print(json.dumps(machine.examine(2, needs_mpirun=False)[3].found))"
    )
    run = run_mounted("mount -t tmpfs -o size=64m tmpfs /dev/shm", [sys.executable, "-c", program], tmp_path)
    assert json.loads(run.stdout) == "64 MiB", run.stderr


def test_ranks_beyond_the_cores_are_told_what_makes_them_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_MCA_mpi_yield_when_idle", raising=False)
    assert machine.cores(2, 2).status == "ok"
    assert "OMPI_MCA_mpi_yield_when_idle=1" in machine.cores(2, 3).advice
    monkeypatch.setenv("OMPI_MCA_mpi_yield_when_idle", "1")
    assert machine.cores(2, 3).status == "ok"


def test_memory_is_for_all_ranks() -> None:
    assert machine.memory(8 * GIB, 8).status == "ok"
    assert machine.memory(8 * GIB - 1, 8).status == "warning"


def test_memory_is_no_more_than_the_machine_has() -> None:
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert 0 < machine.memory_bytes() <= int(total.split()[1]) * 1024


def test_a_program_that_is_missing_fails_only_what_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.program("mpirun", "advice", needed=True).status == "failure"
    assert machine.program("mpirun", "advice").status == "warning"
    (tmp_path / "mpirun").write_text("#!/bin/sh\n")
    (tmp_path / "mpirun").chmod(0o755)
    assert machine.program("mpirun", "advice", needed=True).found == str(tmp_path / "mpirun")


def test_a_name_without_an_address_is_told() -> None:
    assert machine.name("localhost").found == "localhost is 127.0.0.1"
    found = machine.name("a-host.invalid")
    assert found.status == "warning"
    assert "/etc/hosts" in found.advice


def test_cores_are_those_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert machine.examine(1, needs_mpirun=False)[1].found == "1"
    finally:
        os.sched_setaffinity(0, allowed)
