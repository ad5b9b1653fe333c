"""Hosts for the tests of this folder, and what launches ranks on them."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hosts
import pytest
from hosts import Cluster
from launcher import ONE_ORDER, run_launcher
from rank_results import Found, read

PROGRAMS = Path(__file__).with_name("programs")
SUPPORT = Path(hosts.__file__).parent
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))}
LINK = "100mbit"
Launch = Callable[..., list[Found]]


@pytest.fixture(scope="session")
def _possible() -> None:
    """Skips where there can be no hosts."""
    reason = hosts.reason_without()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def two_hosts(_possible: None) -> Iterator[Cluster]:
    """Hosts ``a`` and ``b``, joined by a link of 100 Mbit/s."""
    with hosts.cluster(2, LINK) as found:
        yield found


@pytest.fixture(scope="session")
def four_hosts(_possible: None) -> Iterator[Cluster]:
    """Hosts ``a`` to ``d``, joined by links of 100 Mbit/s."""
    with hosts.cluster(4, LINK) as found:
        yield found


@pytest.fixture
def new_hosts(_possible: None) -> Iterator[Cluster]:
    """Hosts ``a``, ``b`` and ``c``, of which one may vanish."""
    with hosts.cluster(3) as found:
        yield found


@pytest.fixture
def programs() -> Path:
    """Where those are that run on ranks."""
    return PROGRAMS


@pytest.fixture
def rank_environment() -> dict[str, str]:
    """Of those programs."""
    return ENVIRONMENT


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """``launch(cluster, "a:2,b:2", program, *arguments, flags=..., more=...)``: what the ranks that horovodrun starts write.

    ``more`` is what its environment has besides; Horovod adds up in one order, unless told otherwise.
    """

    def run(
        cluster: Cluster,
        slots: str,
        program: str,
        *arguments: str,
        flags: tuple[str, ...] = (),
        more: Mapping[str, str] = ONE_ORDER,
    ) -> list[Found]:
        size = sum(int(slot.partition(":")[2]) for slot in slots.split(","))
        folder = tmp_path / "-".join(("hosts", *flags))
        folder.mkdir()
        command = ["horovodrun", *flags, "-np", str(size), "-H", slots]
        command += [sys.executable, str(PROGRAMS / program), str(folder), *arguments]
        done = cluster.run(*command, folder=folder, environment=ENVIRONMENT | dict(more))
        assert done.returncode == 0, done.stdout
        found = read(folder, size)
        assert [one["host"] for one in found] == [name for slot in slots.split(",") for name in slot[0] * int(slot[2:])]
        assert {one["mpi"] for one in found} == {"--gloo" not in flags}
        return found

    return run


@pytest.fixture
def launch_here(tmp_path: Path) -> Launch:
    """``launch_here(size, program, *arguments, gloo=..., folder=...)``: the same on this machine alone, in one order."""

    def run(size: int, program: str, *arguments: str, gloo: bool = False, folder: Path = tmp_path / "here") -> list[Found]:
        folder.mkdir(exist_ok=True)
        binaries = Path(sys.executable).parent
        launcher = [str(binaries / "horovodrun"), "--gloo"] if gloo else ["mpirun", "--oversubscribe", "--bind-to", "none"]
        command = [*launcher, "-np", str(size), sys.executable, str(PROGRAMS / program), str(folder), *arguments]
        done = run_launcher(command, folder, environment=ENVIRONMENT | ONE_ORDER)
        assert done.returncode == 0, done.stdout
        return read(folder, size)

    return run
