"""Real Horovod ranks, kept alive from test to test, that run functions sent to them."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

import cloudpickle

TESTS = Path(__file__).parents[1]
WORKER = Path(__file__).with_name("rank_worker.py")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",  # ranks may outnumber cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
ONE_ORDER = {
    "HOROVOD_FUSION_THRESHOLD": "0",  # what is fused depends on timing, and the order of additions on what is fused
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allreduce_algorithm": "3",  # recursive doubling, whatever the size of the message
}
"""Settings under which Horovod adds up ranks in one order, so that two runs can be compared bit for bit."""
START_SECONDS = 90
ANSWER_SECONDS = 110
"""Less than a test may take. It only ends ranks that hang: on a busy machine one that traces functions takes a minute."""

MOST_ALIVE = 3
"""Pools. A rank that waits looks for others a thousand times a second, so that twenty of them fill a core."""
_alive: list["RankPool"] = []
"""Those that run, the one that was used last at the end."""


def _send_tests_by_value() -> None:
    """Ranks cannot import test modules, so functions from them travel whole."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and TESTS in Path(file).parents:
            cloudpickle.register_pickle_by_value(module)


class RankError(AssertionError):
    """A rank raised; holds what every rank answered."""

    def __init__(self, message: str, errors: dict[int, BaseException]) -> None:
        super().__init__(message)
        self.errors = errors


class RankPool:
    """N processes under ``mpirun`` (or ``horovodrun --gloo``), each one Horovod rank.

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
        self._environment = ENVIRONMENT | dict(environment or {})
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
        while len(_alive) > MOST_ALIVE:
            _alive[0].close()

    def close(self) -> None:
        """End the ranks."""
        if self in _alive:
            _alive.remove(self)
        for connection in self._connections:
            connection.close()
        self._connections = []
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
                [*launcher, sys.executable, "-P", str(WORKER), address, self._framework],
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


def pools(environment: Mapping[str, str] | None = None, *, framework: str = "torch") -> Iterator[Callable[[int], RankPool]]:
    """For a fixture: a function of a number of ranks that gives a pool of as many, kept while the fixture lives."""
    by_size: dict[int, RankPool] = {}

    def pool(size: int) -> RankPool:
        return by_size.setdefault(size, RankPool(size, environment=environment, framework=framework))

    yield pool
    for one in by_size.values():
        one.close()


def run_launcher(command: list[str], folder: Path, seconds: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Run a launcher to its end in ``folder``; the result's stdout holds both streams."""
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | ENVIRONMENT,
        cwd=folder,
        timeout=seconds,
        check=False,
    )
