"""Tells the user of ranks that stand still what may be wrong.

Where a host is gone, the others wait within stock Horovod, which no code of ours can leave: over Gloo until it gives up, over MPI
until mpirun ends them, which it does not do by itself for minutes.
"""

import logging
import threading
import time
import weakref

logger = logging.getLogger("hvd_adaptive")

PATIENCE = 20.0
"""Seconds. Over Gloo, Horovod gives up after 30; the hint comes before, because over MPI nothing would come after."""
_LOOK_EVERY = 1.0

_all = weakref.WeakSet["Watch"]()
_lock = threading.Lock()
_looking: list[threading.Thread] = []


class Watch:
    """Of the steps of one compression object.

    Args:
        rank: global, for the message.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._said = 0
        self._since: float | None = None
        with _lock:
            _all.add(self)

    def note(self) -> None:
        """A step goes on: a gradient came."""
        self._since = time.monotonic()
        if not _looking:
            _start()

    def rest(self) -> None:
        """No step is under way."""
        self._since = None

    def look(self) -> None:
        """Say, once, that the step does not go on."""
        since, patience = self._since, PATIENCE * 2**self._said
        if since is None or time.monotonic() - since < patience:
            return
        self._since = None
        self._said += 1  # where ranks wait for one that saves or tests, this is said less and less
        logger.warning(
            "rank %d: no gradient has come back for %.0f s; another rank is late, or its host is gone. If it is gone, this rank "
            "will end: over Gloo with HorovodInternalError after HOROVOD_GLOO_TIMEOUT_SECONDS (30 by default), over MPI when "
            "mpirun misses the host, which takes minutes unless OMPI_MCA_oob_tcp_keepalive_time=10 and what docs/multihost.md "
            "names beside it are set. Then go on from the last checkpoint; hvd.elastic does so by itself",
            self._rank,
            patience,
        )


def _start() -> None:
    with _lock:
        if not _looking:
            _looking.append(threading.Thread(target=_look, daemon=True, name="hvd_adaptive.watch"))
            _looking[0].start()


def _look() -> None:
    while True:
        time.sleep(_LOOK_EVERY)
        with _lock:
            watches = list(_all)
        for watch in watches:
            watch.look()
        del watches
