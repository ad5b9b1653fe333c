"""Hosts on this machine: network namespaces, each with one interface to a switch, which is in a namespace too.

Nothing is added to the network of the machine itself, so neither names nor addresses can collide with what is there. Needs root
and Debian's iproute2.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator

SUBNET = "10.87.0"
DEVICE = "link0"
"""A host's interface."""


class NoHostsError(RuntimeError):
    """This machine or this user cannot have such hosts; the message says why."""


def ip(*arguments: str) -> list[str]:
    """The command ``ip``."""
    return ["ip", *arguments]


def check_possible() -> None:
    """Find out before anything is made.

    Raises:
        NoHostsError: if it is not.
    """
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if os.geteuid() != 0:
        raise NoHostsError("network namespaces can only be made by root")
    if missing:
        raise NoHostsError(f"network namespaces need {' and '.join(missing)}; install with: apt-get install iproute2")


@contextlib.contextmanager
def namespaces(prefix: str, number: int, rate: str | None) -> Iterator[list[str]]:
    """Make ``number`` hosts for as long as the block runs; processes that are left on them then are ended.

    Args:
        prefix: of the namespaces' names. Number 0 is the switch.
        number: of hosts.
        rate: of each host's interface, in ``tc``'s words; None leaves it as fast as the machine.

    Yields:
        the names of the hosts' namespaces. The address of the first ends in 1, and so on.

    Raises:
        NoHostsError: if this machine or this user cannot have them.
    """
    check_possible()
    try:
        _build(prefix, number, rate)
        yield [f"{prefix}{host}" for host in range(1, number + 1)]
    finally:
        _remove(prefix)


@contextlib.contextmanager
def terminated_like_interrupted(kind: type[BaseException] = SystemExit) -> Iterator[None]:
    """SIGTERM ends the block by an exception of that ``kind``, as Ctrl-C does, so that what was set up is removed."""

    def leave(number: int, _: object) -> None:
        raise kind(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _build(prefix: str, number: int, rate: str | None) -> None:
    switch = f"{prefix}0"
    commands = [ip("netns", "add", switch)]
    inside = ip("-n", switch, "link")
    commands += [[*inside, "set", "lo", "up"], [*inside, "add", "switch", "type", "bridge"], [*inside, "set", "switch", "up"]]
    commands += [ip("-n", switch, "address", "add", f"{SUBNET}.254/24", "dev", "switch")]
    for host in range(1, number + 1):
        name, port = f"{prefix}{host}", f"port{host}"
        commands += [
            ip("netns", "add", name),
            [*inside, "add", port, "type", "veth", "peer", "name", DEVICE, "netns", name],
            [*inside, "set", port, "master", "switch", "up"],
            ip("-n", name, "address", "add", f"{SUBNET}.{host}/24", "dev", DEVICE),
            ip("-n", name, "link", "set", "lo", "up"),
            ip("-n", name, "link", "set", DEVICE, "up"),
        ]
        if rate is not None:
            shape = ["tbf", "rate", rate, "burst", "128kb", "latency", "20ms"]
            commands.append(["tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", *shape])
    for command in commands:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise NoHostsError(f"no hosts here, for `{' '.join(command)}` said: {' '.join(run.stderr.split())}")


def running(names: Iterable[str], spared: Collection[int] = ()) -> list[int]:
    """The processes in these namespaces, but for those ``spared``."""
    found = [subprocess.run(ip("netns", "pids", name), capture_output=True, text=True, check=False) for name in names]
    return [pid for run in found for pid in map(int, run.stdout.split()) if pid not in spared]


def end_processes(names: Iterable[str], *, gently: bool = True, spared: Collection[int] = ()) -> None:
    """End what runs in these namespaces, but for those ``spared``; ``gently`` lets it finish within two seconds."""
    names = list(names)
    for attempt in range(20):
        pids = running(names, spared)
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if gently and attempt < 10 else signal.SIGKILL)
        time.sleep(0.2)


def _remove(prefix: str) -> None:
    """Interfaces go with their namespaces."""
    listed = subprocess.run(ip("netns", "list"), capture_output=True, text=True, check=False).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.startswith(prefix)]
    end_processes(names)
    for name in names:
        subprocess.run(ip("netns", "delete", name), check=False)
