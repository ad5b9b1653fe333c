"""Lengths kept in a file, so that a data set is measured once.

The file: a line that says what it is, a line of JSON (identity, digest), the lengths as little-endian ``i32[n]``. Nothing in it
is executed when it is read.
"""

import hashlib
import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from hvd_adaptive.bload.draws import I32
from hvd_adaptive.errors import ConfigError

MAGIC = b"hvd_adaptive lengths 1\n"

logger = logging.getLogger("hvd_adaptive")


def load(path: Path, identity: dict[str, Any]) -> I32 | None:
    """The lengths ``i32[n]`` in a file; None if there is none, or if it is damaged, with a warning then.

    Args:
        path: the file.
        identity: of the data set, as JSON types.

    Raises:
        ConfigError: if the file is not one of lengths, or those of another data set: it must not be replaced then.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise ConfigError(f"cache={str(path)!r}: there is no folder {str(path.parent)!r}; create it first") from None
        return None
    except OSError as error:
        raise ConfigError(f"cache={str(path)!r} cannot be read: {error}") from error
    if not content.startswith(MAGIC) and not MAGIC.startswith(content):
        raise ConfigError(f"cache={str(path)!r} holds no lengths, so it is left alone; give the path of a file of its own")
    head, _, data = content[len(MAGIC) :].partition(b"\n")
    header = _header(head)
    if header.get("digest") != _digest(header.get("identity"), data):
        logger.warning("cache %s is damaged; the lengths are measured again", path)
        return None
    if header["identity"] != identity:
        raise ConfigError(
            f"cache={str(path)!r} is of another data set: it holds lengths of {header['identity']}, not of {identity}; give "
            "another path, or delete it"
        )
    return np.frombuffer(data, "<i4").astype(np.int32)


def save(path: Path, identity: dict[str, Any], lengths: I32) -> None:
    """Replace the file in one go, so that no reader meets half of it."""
    data = lengths.astype("<i4").tobytes()
    header = json.dumps({"identity": identity, "digest": _digest(identity, data)})
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            file.write(MAGIC + header.encode() + b"\n" + data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _header(line: bytes) -> dict[str, Any]:
    """What a line of JSON holds; nothing if it is damaged."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _digest(identity: object, data: bytes) -> str:
    digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16)
    digest.update(data)
    return digest.hexdigest()
