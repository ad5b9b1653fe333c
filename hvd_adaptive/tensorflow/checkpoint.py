"""A compression object's state as bytes, without pickle, which may run what a stranger wrote."""

import io
import json
import zipfile
from typing import Any

import numpy as np

from hvd_adaptive.errors import StateError

_ARRAY, _TUPLE, _DICT = "array", "tuple", "dict"


def packed(state: dict[str, Any]) -> bytes:
    """``state``, made of plain values, lists, tuples, dicts and numpy's arrays, as bytes."""
    arrays: list[np.ndarray[Any, Any]] = []
    words = json.dumps(_coded(state, arrays))
    stream = io.BytesIO()
    np.savez(stream, np.frombuffer(words.encode(), np.uint8), *arrays)
    return stream.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """What :func:`packed` was given.

    Raises:
        StateError: if ``data`` is something else.
    """
    try:
        with np.load(io.BytesIO(data)) as stored:
            words, *arrays = (stored[f"arr_{number}"] for number in range(len(stored.files)))
        state: dict[str, Any] = _decoded(json.loads(words.tobytes()), arrays)
    except (ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StateError(f"this is no state of a compression object: {error}") from error
    return state


def _coded(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, dict):
        return {_DICT: [[_coded(key, arrays), _coded(one, arrays)] for key, one in value.items()]}  # keys may be numbers
    if isinstance(value, tuple):
        return {_TUPLE: [_coded(one, arrays) for one in value]}
    return [_coded(one, arrays) for one in value] if isinstance(value, list) else value


def _decoded(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_decoded(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == _ARRAY:
        return arrays[inside]
    if kind == _TUPLE:
        return tuple(_decoded(one, arrays) for one in inside)
    return {_decoded(key, arrays): _decoded(one, arrays) for key, one in inside}
