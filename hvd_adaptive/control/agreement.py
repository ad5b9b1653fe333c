"""Ranks compare what they were configured with, before anything can diverge or hang."""

import hashlib
import json
from typing import Any

import numpy as np

from hvd_adaptive.collective import Collective
from hvd_adaptive.errors import AgreementError
from hvd_adaptive.ops import Ops

_SHOWN = 5
REFUSED = "refused"


def agree(
    ops: Ops, collective: Collective, description: dict[str, Any], name: str, must: str = "build the same compression object"
) -> None:
    """Return if every rank's ``description`` is the same.

    One 32-byte allgather when all is well; the texts travel only to name what differs.

    Args:
        description: what must be equal, as JSON types; or, from a rank that could not be configured, why under :data:`REFUSED`.
        name: names the collectives; the same on every rank.
        must: what every rank must do, for the message.

    Raises:
        AgreementError: on every rank, with the same message, naming what differs.
    """
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).digest()
    digests = _gather(ops, collective, digest, f"{name}.digest")
    if len({digests[i : i + 32] for i in range(0, len(digests), 32)}) == 1:
        return
    text = json.dumps(description).encode()
    lengths = np.frombuffer(_gather(ops, collective, np.int64(len(text)).tobytes(), f"{name}.length"), np.int64)
    texts = _gather(ops, collective, text, f"{name}.text")
    ends = np.cumsum(lengths)
    descriptions = [json.loads(texts[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
    refused = [f"rank {rank}: {d[REFUSED]}" for rank, d in enumerate(descriptions) if REFUSED in d]
    found = refused or differences({f"rank {rank}": description for rank, description in enumerate(descriptions)})
    raise AgreementError(f"the ranks were configured differently; every rank must {must}. Found:\n  " + "\n  ".join(found))


def largest(ops: Ops, collective: Collective, number: int, name: str) -> int:
    """The largest ``number`` of all ranks, by one 8-byte allgather."""
    return int(np.frombuffer(_gather(ops, collective, np.int64(number).tobytes(), name), np.int64).max())


def differences(descriptions: dict[str, dict[str, Any]]) -> list[str]:
    """One line for each entry in which a description differs from the first, at most five and a count of the rest.

    Args:
        descriptions: by the name of who holds them.
    """
    (first, reference), *others = descriptions.items()
    found = []
    for key in dict.fromkeys(key for description in descriptions.values() for key in description):
        for holder, description in others:
            if _text(description, key) != _text(reference, key):
                here, there = (d.get(key, "nothing") for d in (reference, description))
                found.append(f"{key}: {first} has {here}, {holder} has {there}")
                break
    more = [f"... and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more


def _text(description: dict[str, Any], key: str) -> str | None:
    return json.dumps(description[key], sort_keys=True) if key in description else None


def _gather(ops: Ops, collective: Collective, data: bytes, name: str) -> bytes:
    raw = ops.from_numpy(np.frombuffer(data, np.uint8).copy())
    return bytes(ops.to_numpy(collective.wait(collective.start("gather", raw, name))).tobytes())
