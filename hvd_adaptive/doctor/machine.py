"""Cores, memory, shared memory and programs."""

import os
import shutil
import socket
import sys
from pathlib import Path

from hvd_adaptive.doctor.finding import Finding

_MIB = 2**20
_SHARED = Path("/dev/shm")  # noqa: S108 - where Open MPI's ranks and DataLoader's workers meet; nothing is written
_SHARED_LEAST = 128 * _MIB
"""Docker gives 64 MiB, which eight ranks of Open MPI (4 MiB each, and a buffer for every pair) or a few workers exceed."""
_SHARED_PER_RANK = 16 * _MIB
_MEMORY_PER_RANK = 1024 * _MIB
"""Torch, Horovod and a small model take half of it."""
_YIELD = "OMPI_MCA_mpi_yield_when_idle"
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def examine(ranks: int, *, needs_mpirun: bool) -> list[Finding]:
    """Of this machine, for so many ranks on it."""
    return [
        python(sys.version_info[:2], sys.executable),
        cores(len(os.sched_getaffinity(0)), ranks),
        memory(memory_bytes(), ranks),
        shared_memory(shutil.disk_usage(_SHARED).total if _SHARED.is_dir() else 0, ranks),
        name(socket.gethostname()),
        program("mpirun", "apt-get install openmpi-bin, or run over Gloo: horovodrun --gloo", needed=needs_mpirun),
        program("ssh", "runs on several hosts need it: apt-get install openssh-client"),
    ]


def python(version: tuple[int, ...], executable: str) -> Finding:
    """Python itself; Horovod 0.28.1 and its frameworks build with 3.10 to 3.12."""
    found = f"{version[0]}.{version[1]} ({executable})"
    if (3, 10) <= version <= (3, 12):
        return Finding("Python", "ok", found)
    return Finding("Python", "warning", found, "Horovod 0.28.1 was tried with Python 3.10, 3.11 and 3.12 only")


def cores(count: int, ranks: int) -> Finding:
    """Cores that this process may use."""
    if ranks <= count or os.environ.get(_YIELD) == "1":
        return Finding("cores", "ok", str(count))
    return Finding("cores", "warning", f"{count} for {ranks} ranks", f"set {_YIELD}=1 and OMP_NUM_THREADS=1")


def memory_bytes() -> int:
    """Of the machine, or of the container if that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CGROUP_LIMITS:
        if file.exists() and (text := file.read_text(encoding="ascii").strip()).isdigit():
            limits.append(int(text))
    return min(limits)


def memory(size: int, ranks: int) -> Finding:
    """Memory for all ranks, in bytes."""
    found = f"{size / 2**30:.1f} GiB"
    if size >= ranks * _MEMORY_PER_RANK:
        return Finding("memory", "ok", found)
    return Finding("memory", "warning", found, f"{ranks} ranks may take {ranks} GiB: start fewer, or give the container more")


def shared_memory(size: int, ranks: int) -> Finding:
    """Size of /dev/shm, in bytes."""
    found = f"{size / _MIB:,.0f} MiB"
    if size >= max(_SHARED_LEAST, ranks * _SHARED_PER_RANK):
        return Finding(str(_SHARED), "ok", found)
    advice = "Open MPI's ranks may fail or hang in it: docker run --shm-size=1g; on Kubernetes an emptyDir with medium: Memory"
    return Finding(str(_SHARED), "warning", found, advice)


def name(host: str) -> Finding:
    """This host's name."""
    try:
        return Finding("host name", "ok", f"{host} is {socket.gethostbyname(host)}")
    except OSError as error:
        advice = "ranks over Gloo crash without: add the name to /etc/hosts or to the network's DNS"
        return Finding("host name", "warning", f"{host} has no address: {error}", advice)


def program(command: str, advice: str, *, needed: bool = False) -> Finding:
    """A program on ``PATH``."""
    found = shutil.which(command)
    if found:
        return Finding(command, "ok", found)
    return Finding(command, "failure" if needed else "warning", "not on PATH", advice)
