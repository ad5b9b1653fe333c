"""One block as it is given to training: what is in it, and the samples themselves."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.errors import ConfigError


class Packed(NamedTuple):
    """A block and its samples, not yet put one after the other.

    Attributes:
        block: what it holds.
        samples: one for each of its sequences, cut to what the block holds; for an empty block, one of no elements, which tells
            how samples look.
    """

    block: Block
    samples: list[Any]


def cut(sample: Any, offset: int, length: int) -> Any:
    """The part of a sample from element ``offset`` on.

    Of a tuple, a dict or a list of arrays, every array, tensor or list is cut, along its first axis; what has none, such as a
    label or a name, stays as it is.
    """
    if not _has_members(sample):
        return sample[offset : offset + length]
    if isinstance(sample, Mapping):
        return {key: _cut_member(member, offset, length) for key, member in sample.items()}
    members = [_cut_member(member, offset, length) for member in sample]
    if isinstance(sample, list):
        return members
    return type(sample)(*members) if hasattr(sample, "_fields") else tuple(members)


def measured(length_fn: Callable[[Any], object], sample: Any) -> object:
    """The length of a sample.

    Raises:
        ConfigError: if its members would be counted instead of its elements.
    """
    if length_fn is len and _has_members(sample):
        raise ConfigError(
            f"a sample is a {type(sample).__name__} of {len(sample)}, which len() would take for its length; give length_fn=, "
            "such as lambda sample: len(sample[0])"
        )
    return length_fn(sample)


def _cut_member(member: Any, offset: int, length: int) -> Any:
    if _has_members(member):
        return cut(member, offset, length)
    return member[offset : offset + length] if isinstance(member, list) or _is_array(member) else member


def _has_members(sample: Any) -> bool:
    """True if it is made of parts that belong to the same elements; a list may also be the elements themselves."""
    return isinstance(sample, tuple | Mapping) or (isinstance(sample, list) and bool(sample) and _is_array(sample[0]))


def _is_array(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0) > 0)
