"""Real Horovod ranks, kept alive from test to test, that run functions sent to them."""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

import cloudpickle
from launcher import ENVIRONMENT

TESTS = f"{Path(__file__).parents[1]}{os.sep}"
WORKER = Path(__file__).with_name("rank_worker.py")
END_WITH_US = ["setpriv", "--pdeathsig", "TERM"]
"""Also where this process is killed, and the ranks it stopped would stay for ever."""
START_SECONDS = 90
ANSWER_SECONDS = 110
"""Less than a test may take. It only ends ranks that hang: on a busy machine one that traces functions takes a minute."""
PROCESS_SETS = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
"""Tests make some. Programs get this not: over MPI a rank that waits for one that is gone may then run no Python."""

MOST_RANKS = 12
"""Alive in all pools together, for each takes up to 0.7 GB."""
_alive: list["RankPool"] = []
"""Those that run, the one that was used last at the end."""


def _send_tests_by_value() -> None:
    """Ranks cannot import test modules, so functions from them travel whole."""
    for module in list(sys.modules.values()):  # thousands of them, before every call
        if (getattr(module, "__file__", None) or "").startswith(TESTS):
            cloudpickle.register_pickle_by_value(module)


class RankError(AssertionError):
    """A rank raised; holds what every rank answered."""

    def __init__(self, message: str, errors: dict[int, BaseException]) -> None:
        super().__init__(message)
        self.errors = errors


class RankPool:
    """N processes under ``mpirun`` (or ``horovodrun --gloo``), each one Horovod rank.

    Between calls they are stopped, for a rank that waits looks for others a thousand times a second, and twenty of them fill a
    core. Those over Gloo, whose waiting has a time limit, go on.

    Args:
        size: number of ranks.
        gloo: talk over Gloo instead of MPI.
        environment: more variables for the ranks.
        framework: of the ranks, torch or tensorflow.
    """

    def __init__(
        self, size: int, *, gloo: bool = False, environment: Mapping[str, str] | None = None, framework: str = "torch"
    ) -> None:
        self.size = size
        self._framework = framework
        self._gloo = gloo
        self._environment = ENVIRONMENT | PROCESS_SETS | dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._connections: list[Connection] = []
        self._pids: list[int] = []
        self._folder: Path | None = None

    def run(self, function: Callable[..., Any], *arguments: Any, seconds: float = ANSWER_SECONDS) -> list[Any]:
        """Call ``function(*arguments)`` on every rank at once; the results in rank order.

        Raises:
            RankError: if it raised on any rank, or did not return in time. The ranks are then started anew for the next call.
        """
        answers = self.attempt(function, *arguments, seconds=seconds)
        errors = {rank: answer for rank, answer in enumerate(answers) if isinstance(answer, BaseException)}
        if errors:
            self.close()
            texts = "\n".join(f"rank {rank}: {getattr(e, 'remote_traceback', e)}" for rank, e in errors.items())
            raise RankError(texts, errors)
        return answers

    def attempt(self, function: Callable[..., Any], *arguments: Any, seconds: float = ANSWER_SECONDS) -> list[Any]:
        """As :meth:`run`, but an exception that a rank raised stands in its place among the results.

        Raises:
            RankError: if a rank did not answer in time.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        self._note_use()
        self._signal(signal.SIGCONT)
        try:
            return self._answers(function, arguments, seconds)
        finally:
            if not self._gloo:
                self._signal(signal.SIGSTOP)

    def _answers(self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> list[Any]:
        _send_tests_by_value()
        call = cloudpickle.dumps((function, arguments))
        for connection in self._connections:
            connection.send_bytes(call)
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + seconds
        while len(answers) < self.size:
            pending = [c for rank, c in enumerate(self._connections) if rank not in answers]
            ready = wait(pending, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                silent = sorted(set(range(self.size)) - set(answers))
                message = f"ranks {silent} did not answer within {seconds} s\n{self._where(silent)}"
                self.close()
                raise RankError(message, {})
            for connection in ready:
                answers[self._connections.index(connection)] = self._receive(connection)
        return [self._read(answers[rank]) for rank in range(self.size)]  # when all are in, for what cannot be read raises

    def _note_use(self) -> None:
        """End the ranks that were used longest ago; they start anew when they are needed."""
        if self in _alive:
            _alive.remove(self)
        _alive.append(self)
        while len(_alive) > 1 and sum(pool.size for pool in _alive) > MOST_RANKS:
            _alive[0].close()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """End the ranks."""
        if self in _alive:
            _alive.remove(self)
        for connection in self._connections:
            connection.close()
        self._signal(signal.SIGCONT)
        self._connections, self._pids = [], []
        if self._process is not None:
            try:
                self._process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self._process.terminate()  # the launcher ends its ranks
                try:
                    self._process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self) -> None:
        self.close()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        address = str(folder / "socket")
        binaries = Path(sys.executable).parent
        if self._gloo:
            launcher = [str(binaries / "horovodrun"), "--gloo", "-np", str(self.size)]
        else:
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(self.size)]
        with (folder / "output.txt").open("w") as output, Listener(address, backlog=self.size) as listener:
            self._process = subprocess.Popen(
                [*END_WITH_US, *launcher, sys.executable, "-P", str(WORKER), address, self._framework],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                env=os.environ | self._environment,
                cwd=folder,
            )
            by_rank = {rank: (connection, pid) for rank, connection, pid in (self._accept(listener) for _ in range(self.size))}
        self._connections = [by_rank[rank][0] for rank in range(self.size)]
        self._pids = [by_rank[rank][1] for rank in range(self.size)]

    def _accept(self, listener: Listener) -> tuple[int, Connection, int]:
        socket = listener._listener._socket  # the only way to wait for a connection with a time limit
        socket.settimeout(START_SECONDS)
        try:
            connection = listener.accept()
        except TimeoutError:
            message = f"{self.size} ranks did not start within {START_SECONDS} s\n{self._tail()}"
            self.close()
            raise RankError(message, {}) from None
        rank, pid = connection.recv()
        return rank, connection, pid

    def _receive(self, connection: Connection) -> Any:
        try:
            return connection.recv_bytes()
        except EOFError:
            return RankError(f"the rank died\n{self._tail()}", {})

    def _read(self, received: bytes | RankError) -> Any:
        if isinstance(received, RankError):
            return received
        succeeded, answer = cloudpickle.loads(received)
        if succeeded:
            return answer
        error, text = answer
        error.remote_traceback = text
        return error

    def _where(self, ranks: list[int]) -> str:
        """The end of the output, after these ranks wrote down what their threads are doing."""
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], signal.SIGUSR1)
        time.sleep(1)  # they write, and mpirun passes it on
        return self._tail(30_000)

    def _tail(self, characters: int = 4000) -> str:
        return "" if self._folder is None else (self._folder / "output.txt").read_text()[-characters:]


_shared: dict[tuple[int, str, str], RankPool] = {}


def pools(environment: Mapping[str, str] | None = None, *, framework: str = "torch") -> Callable[[int], RankPool]:
    """A function of a number of ranks that gives a pool of as many, the same one to all tests that ask for such ranks."""

    def pool(size: int) -> RankPool:
        key = size, str(environment), framework
        return _shared.setdefault(key, RankPool(size, environment=environment, framework=framework))

    return pool


@atexit.register
def _close_all() -> None:
    while _alive:
        _alive[0].close()
