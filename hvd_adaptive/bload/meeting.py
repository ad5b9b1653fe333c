"""What ranks tell each other before they go on, so that either all go on or all fail with the same message."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hvd_adaptive.errors import AgreementError, ConfigError, HvdAdaptiveError, SourceError

_FAULT, _LEGAL = "fault", "legal"


def fault(error: Exception) -> dict[str, Any]:
    """What to tell of an error, instead of what was to be told."""
    known = isinstance(error, HvdAdaptiveError)
    return {_FAULT: str(error) if known else f"{type(error).__name__}: {error}", _LEGAL: not isinstance(error, ConfigError)}


class Meeting:
    """Tells all ranks what one has to say, with one small allgather each time.

    Args:
        owner: begins every message.
        ranks: numbers of those that meet, for messages.
        gather: from this rank's bytes ``u8[n]`` to those of all ranks, one after the other in their order.
    """

    def __init__(self, owner: str, ranks: Sequence[int], gather: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> None:
        self._owner = owner
        self._ranks = ranks
        self._gather = gather

    def tell(self, told: dict[str, Any], error: Exception | None = None) -> list[dict[str, Any]]:
        """What all ranks told, in rank order.

        Args:
            told: JSON types.
            error: why this rank cannot go on.

        Raises:
            ConfigError: on every rank, if one of them met one.
            SourceError: on every rank, if one of them met any other error.
        """
        line = json.dumps(told if error is None else fault(error)).encode() + b"\n"
        heard = self._gather(np.frombuffer(line, np.uint8).copy())
        said = [json.loads(line) for line in heard.tobytes().split(b"\n")[:-1]]
        faults = [(rank, words) for rank, words in zip(self._ranks, said, strict=True) if _FAULT in words]
        if faults:
            rank, words = faults[0]
            others = f" (and {len(faults) - 1} more ranks failed)" if faults[1:] else ""
            kind = SourceError if words[_LEGAL] else ConfigError
            raise kind(f"{self._owner}: rank {rank}: {words[_FAULT]}{others}") from error
        return said

    def compare(self, said: Sequence[dict[str, Any]], advice: str) -> None:
        """
        Raises:
            AgreementError: on every rank, unless all told the same.
        """
        for rank, words in zip(self._ranks, said, strict=True):
            differing = [key for key, value in words.items() if value != said[0].get(key)]
            if differing:
                found = "; ".join(
                    f"{key}: rank {self._ranks[0]} has {said[0].get(key)!r}, rank {rank} has {words[key]!r}" for key in differing
                )
                raise AgreementError(f"{self._owner}: {found}; {advice}")
