"""The samples that a block is made of, of any framework's arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.lengths import read
from hvd_adaptive.bload.packed import Packed, cut
from hvd_adaptive.errors import ConfigError

T_co = TypeVar("T_co", covariant=True)


class Indexed(Protocol[T_co]):
    """What samples are read from by their index."""

    def __getitem__(self, index: int, /) -> T_co: ...


class Samples:
    """Samples by the block instead of one by one.

    Args:
        dataset: samples by index; each an array, or a tuple, list or dict of them, all with time first and as long.
        lengths: of all of them, as they were packed; None where no sequence was split or truncated, for a block does not tell how
            long all of a sequence is.

    Raises:
        ConfigError: if ``lengths`` are not legal.
    """

    def __init__(self, dataset: Indexed[Any], lengths: Any = None) -> None:
        self._dataset = dataset
        self._lengths = None if lengths is None else read(lengths)

    def read(self, block: Block) -> Packed:
        """The samples of a block; of an empty one, the first of the data set without its elements.

        Raises:
            ConfigError: if a sample is not as long as recorded, or its parts are not as long as each other.
        """
        if not block.ids.size:
            return Packed(block, [cut(self._dataset[0], 0, 0)])
        return Packed(block, [self._part(*entry) for entry in zip(*(column.tolist() for column in block), strict=True)])

    def _part(self, index: int, offset: int, length: int) -> Any:
        sample = self._dataset[index]
        found = _length(sample, index)
        recorded = offset + length if self._lengths is None else int(self._lengths[index])
        if found != recorded:
            hint = "; if the sampler splits or truncates, give BLoadDataset its lengths" if self._lengths is None else ""
            raise ConfigError(
                f"dataset[{index}] has {found} elements, but its length was {recorded}; measure lengths on the samples that the "
                f"data set gives, after all that changes them{hint}"
            )
        return sample if length == found else cut(sample, offset, length)


def mapped(function: Callable[..., Any], *samples: Any) -> Any:
    """``function`` of the parts of ``samples`` that belong together, in their common structure."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: mapped(function, *(sample[key] for sample in samples)) for key in first}
    if isinstance(first, tuple | list):
        return tuple(mapped(function, *parts) for parts in zip(*samples, strict=True))
    return function(*samples)


def apart(samples: Sequence[Any], targets: str | None, owner: str) -> tuple[list[Any], list[Any] | None]:
    """Data and targets of samples, which are all of one structure.

    A tuple is data and, last, its targets; of more than two parts, data is a tuple. A dict is all data, but for the key
    ``targets``.

    Raises:
        ConfigError: if ``targets`` is not a key of them.
    """
    first = samples[0]
    if targets is not None:
        if not isinstance(first, dict) or targets not in first:
            had = f"a dict with {', '.join(map(repr, first))}" if isinstance(first, dict) else "no dict"
            raise ConfigError(f"{owner}: targets={targets!r} must be a key of each sample, which is {had}")
        data = [{key: value for key, value in sample.items() if key != targets} for sample in samples]
        return data, [sample[targets] for sample in samples]
    if not isinstance(first, tuple) or len(first) == 1:
        return list(samples), None
    return [sample[0] if len(sample) == 2 else sample[:-1] for sample in samples], [sample[-1] for sample in samples]


def _length(sample: Any, index: int) -> int:
    lengths = [_leaf_length(leaf, index) for leaf in _leaves(sample)]
    if len(set(lengths)) != 1:
        raise ConfigError(
            f"the parts of dataset[{index}] must be equally long, got {lengths}; give each one value for each "
            "element of its sequence"
        )
    return lengths[0]


def _leaves(sample: Any) -> Sequence[Any]:
    found: list[Any] = []
    mapped(found.append, sample)
    return found


def _leaf_length(leaf: Any, index: int) -> int:
    if not getattr(leaf, "ndim", 0):
        raise ConfigError(
            f"dataset[{index}] must be a tensor or array with time first, or a tuple, list or dict of them, got "
            f"{type(leaf).__name__} in it; give each one value for each element of its sequence"
        )
    return int(leaf.shape[0])
