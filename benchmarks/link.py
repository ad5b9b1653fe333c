"""Hosts on this machine, one rank each, joined by a link of a known rate; as a program, measures that link.

    python benchmarks/link.py --link 100mbit [--ranks 2] [--megabytes 20]

Each host is a network namespace with a token bucket on its one interface. Needs root and Debian's iproute2; ``--link none`` needs
neither.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from namespaces import DEVICE, SUBNET, NoHostsError, ip, namespaces, terminated_like_interrupted

LOOPBACK = "127.0.0.1"
LINKS: dict[str, str | None] = {"none": None, "1gbit": "1gbit", "100mbit": "100mbit"}
"""The rate of each host's interface, in ``tc``'s words, by name."""

_PASSED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONWARNINGS")
_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def environment() -> dict[str, str]:
    """What to start ``mpirun`` with: more ranks than cores must share them."""
    return _DEFAULTS | os.environ


@contextlib.contextmanager
def hosts(link: str, ranks: int) -> Iterator[list[str]]:
    """Set the hosts up for as long as the block runs.

    Yields:
        ``mpirun`` and its options, to be followed by the program; for no link, all ranks run on this machine itself.

    Raises:
        SystemExit: if this machine or this user cannot have such hosts.
    """
    rate, mpirun = LINKS[link], ["mpirun", "--oversubscribe", "--bind-to", "none"]
    prefix = f"hva{os.getpid()}-"
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        if rate is None:
            yield [*mpirun, "-np", str(ranks)]
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            stack.enter_context(namespaces(prefix, ranks, rate))
        except NoHostsError as error:
            raise SystemExit(f"error: --link {link}: {error}; or run with --link none") from None
        yield [*ip("netns", "exec", f"{prefix}0"), *mpirun, *_options(ranks, _agent(folder, prefix))]


def _agent(folder: Path, prefix: str) -> Path:
    """What Open MPI runs instead of ssh, as ``agent ADDRESS COMMAND``; each host has a name, so session folders, of its own."""
    agent = folder / "agent"
    agent.write_text(
        f'#!/bin/sh\nhost={prefix}${{1##*.}}\nshift\nexec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n'
    )
    agent.chmod(0o700)
    return agent


def _options(ranks: int, agent: Path) -> list[str]:
    """Of ``mpirun``: one rank on each host, and no way between them but the link."""
    subnet = f"{SUBNET}.0/24"
    settings = {
        "plm_rsh_agent": str(agent),
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": subnet,
        "oob_tcp_if_include": subnet,
        # Else a host's go-ahead for the other's payload may wait behind its own, and the two go one after the other.
        **dict.fromkeys(("btl_tcp_eager_limit", "btl_tcp_rndv_eager_limit", "btl_tcp_max_send_size"), str(2 << 20)),
    }
    passed = [name for name in _PASSED if name in environment()]
    return [
        *("-H", ",".join(f"{SUBNET}.{number}:1" for number in range(1, ranks + 1)), "-np", str(ranks)),
        *(word for name, value in settings.items() for word in ("--mca", name, value)),
        *(word for name in passed for word in ("-x", name)),
    ]


def address() -> str:
    """Of the host this runs on, by which the others reach it; loopback where ranks share a machine."""
    if shutil.which("ip") is None:
        return LOOPBACK
    shown = subprocess.run(["ip", "-4", "-o", "address", "show", "dev", DEVICE], capture_output=True, text=True, check=False)
    return (shown.stdout.split() or [""] * 4)[3].partition("/")[0] or LOOPBACK


def measure(megabytes: float) -> None:
    """Run by every rank: the time of an allreduce, and where the ranks are."""
    import horovod.torch as hvd  # noqa: PLC0415  # slow to import, and not needed by whoever only wants hosts
    import torch  # noqa: PLC0415

    hvd.init()
    data = torch.ones(int(megabytes * 250_000))
    hvd.allreduce(data[:1000], name="first")
    taken = []
    for number in range(3):
        hvd.barrier()
        start = time.perf_counter()
        hvd.allreduce(data, name=f"timed.{number}")
        taken.append(time.perf_counter() - start)
    addresses = hvd.allgather_object(address())
    if hvd.rank() == 0:
        print(json.dumps({"seconds": round(min(taken), 4), "addresses": addresses, "local_size": hvd.local_size()}), flush=True)
    hvd.shutdown()


def main() -> int:
    """Launch the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", choices=LINKS, default="100mbit")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--be-a-rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.be_a_rank:
        measure(args.megabytes)
        return 0
    program = [sys.executable, str(Path(__file__).absolute()), "--be-a-rank", "--megabytes", str(args.megabytes)]
    with hosts(args.link, args.ranks) as mpirun:
        return subprocess.run([*mpirun, *program], env=environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
