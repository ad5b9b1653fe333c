"""Hosts with names, each reached by the others over ssh, as users have them; all on this machine, none on its network."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import ENVIRONMENT
from namespaces import DEVICE, SUBNET, NoHostsError, end_processes, ip, namespaces, running, terminated_like_interrupted

NAMES = "abcd"
START_SECONDS = 10
"""Until every sshd listens, which takes a tenth of one."""

_ENTER = """#!/bin/sh
# Runs a command on this host; what is mounted for it, nobody else sees.
hostname {name} && mount --bind {folder}/hosts /etc/hosts && mount -t tmpfs tmpfs /run && mkdir /run/sshd || exit 125
exec "$@"
"""
_SSHD_CONFIG = """ListenAddress {address}
HostKey {folder}/{name}.key
AuthorizedKeysFile {folder}/user.key.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
MaxStartups 100
PidFile none
SetEnv PATH={path} TMPDIR={folder}
"""
_SSH_CONFIG = """IdentityFile {folder}/user.key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile none
StrictHostKeyChecking yes
"""


@dataclass(frozen=True)
class Cluster:
    """Hosts that are up.

    Attributes:
        folder: that all of them see; also the home of the user.
        spaces: the network namespace of each host, by name.
        servers: each host's sshd.
    """

    folder: Path
    spaces: Mapping[str, str]
    servers: "dict[str, subprocess.Popen[bytes]]"

    def command(self, host: str, *command: str) -> list[str]:
        """``command`` on a host."""
        return [*ip("netns", "exec", self.spaces[host]), "unshare", "--uts", str(self.folder / f"{host}.enter"), *command]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What to start commands with."""
        folders = dict.fromkeys(("HOME", "TMPDIR"), str(self.folder))  # where hosts that vanish leave what they had open
        return os.environ | ENVIRONMENT | folders | {"PATH": self.path} | dict(more or {})

    @property
    def path(self) -> str:
        """Where programs are, first the ssh that knows this cluster's keys."""
        return f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    @contextlib.contextmanager
    def start(
        self, *command: str, folder: Path, output: Path, environment: Mapping[str, str] | None = None
    ) -> Iterator["subprocess.Popen[str]"]:
        """``command`` on the first host, in ``folder``, for as long as the block runs; ``output`` gets both streams."""
        with output.open("w") as stream:
            process = subprocess.Popen(
                self.command(NAMES[0], *command),
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                env=self.environment(environment),
                cwd=folder,
            )
        with process:
            try:
                yield process
            finally:
                end_processes(self.spaces.values(), spared=self._spared())

    def run(
        self, *command: str, folder: Path, environment: Mapping[str, str] | None = None, seconds: float = 240.0
    ) -> "subprocess.CompletedProcess[str]":
        """As :meth:`start`, to its end, which none takes a minute to on 2 idle cores."""
        output = folder / "output.txt"
        with self.start(*command, folder=folder, output=output, environment=environment) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired as error:
                error.output = output.read_text()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output.read_text())

    def running(self) -> list[int]:
        """Processes on all hosts, but for each one's sshd."""
        return running(self.spaces.values(), self._spared())

    def _spared(self) -> list[int]:
        return [server.pid for server in self.servers.values()]

    def set_kernel(self, name: str, value: int) -> None:
        """A setting of every host's network, by its name below ``/proc/sys``."""
        for host in self.spaces:
            subprocess.run(self.command(host, "sh", "-c", f"echo {value} > /proc/sys/{name}"), check=True)

    def vanish(self, host: str) -> None:
        """As when its power fails: the link goes first, so that none of its processes can say good-bye."""
        subprocess.run(ip("-n", self.spaces[host], "link", "set", DEVICE, "down"), check=True)
        end_processes([self.spaces[host]], gently=False)


def reason_without() -> str:
    """Why there can be no such hosts here; empty if there can."""
    try:
        with cluster(2, "100mbit"):
            return ""
    except NoHostsError as error:
        return str(error)


@contextlib.contextmanager
def cluster(number: int, rate: str | None = None) -> Iterator[Cluster]:
    """Hosts ``a``, ``b`` and so on, for as long as the block runs.

    Raises:
        NoHostsError: if there can be none here; the message says why.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted(KeyboardInterrupt))  # pytest goes on to the next test after others
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts-")))
        prefix = f"hva{os.getpid()}-{folder.name[-4:]}-"
        servers: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_reap, servers)  # they end with their namespaces
        spaces = dict(zip(NAMES, stack.enter_context(namespaces(prefix, number, rate)), strict=False))
        found = Cluster(folder, spaces, servers)
        _write_files(found)
        for name in spaces:
            servers[name] = _serve(found, name)
        _wait(found)
        yield found


def _write_files(found: Cluster) -> None:
    """Keys, names and settings."""
    folder, names = found.folder, list(found.spaces)
    addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(names, 1)}
    for owner in ("user", *names):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", owner, "-f", str(folder / f"{owner}.key")]
        subprocess.run(command, check=True)
    lines = [f"{name},{addresses[name]} {(folder / f'{name}.key.pub').read_text()}" for name in names]
    (folder / "known_hosts").write_text("".join(lines))
    (folder / "hosts").write_text("".join(f"{addresses[name]} {name}\n" for name in names) + "127.0.0.1 localhost\n")
    (folder / "ssh_config").write_text(_SSH_CONFIG.format(folder=folder))
    (folder / "bin").mkdir()
    _program(folder / "bin" / "ssh", f'#!/bin/sh\nexec {_found("ssh")} -F {folder}/ssh_config "$@"\n')
    for name in names:
        _program(folder / f"{name}.enter", _ENTER.format(name=name, folder=folder))
        settings = _SSHD_CONFIG.format(address=addresses[name], name=name, folder=folder, path=found.path)
        (folder / f"{name}.sshd_config").write_text(settings)


def _program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def _found(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        raise NoHostsError(f"hosts need {program}; install with: apt-get install openssh-server openssh-client")
    return path


def _serve(found: Cluster, name: str) -> "subprocess.Popen[bytes]":
    command = [_found("sshd"), "-D", "-E", str(found.folder / f"{name}.log"), "-f", str(found.folder / f"{name}.sshd_config")]
    return subprocess.Popen(found.command(name, *command), stdin=subprocess.DEVNULL)


def _reap(servers: "dict[str, subprocess.Popen[bytes]]") -> None:
    for server in servers.values():
        server.wait()


def _wait(found: Cluster) -> None:
    logs = {name: found.folder / f"{name}.log" for name in found.servers}
    deadline = time.monotonic() + START_SECONDS
    while silent := [name for name, log in logs.items() if not log.exists() or "listening" not in log.read_text()]:
        if time.monotonic() > deadline:
            said = {name: logs[name].read_text() if logs[name].exists() else "" for name in silent}
            raise RuntimeError(f"sshd did not start on {said}")
        time.sleep(0.05)
