"""The samples that a block is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.lengths import read
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.torch.bload.packed import Packed, cut

T_co = TypeVar("T_co", covariant=True)


class Indexed(Protocol[T_co]):
    """What samples are read from by their index."""

    def __getitem__(self, index: int, /) -> T_co: ...


@dataclass(frozen=True, eq=False)
class BLoadDataset(Dataset[Packed]):
    """Samples by the block instead of one by one.

    Args:
        dataset: samples by index; each a tensor or array, or a tuple, list or dict of them, all with time first and as long.
        lengths: those the sampler was given; needed where it splits or truncates long sequences, for a block does not tell how
            long all of a sequence is.
    """

    dataset: Indexed[Any]
    lengths: Any = None

    def __post_init__(self) -> None:
        if self.lengths is not None:
            object.__setattr__(self, "lengths", read(self.lengths))

    def __len__(self) -> int:
        """Number of sequences, if the data set knows it."""
        return len(self.dataset)  # type: ignore[arg-type]  # not all of them do

    def __getitem__(self, block: Block) -> Packed:
        """
        Raises:
            ConfigError: if a sample is not as long as recorded, or its parts are not as long as each other.
        """
        if not isinstance(block, Block):
            raise ConfigError(
                f"BLoadDataset is read by the block, got {block!r}; use it with DataLoader(..., batch_sampler=BLoadSampler(...))"
            )
        if not block.ids.size:
            return Packed(block, [cut(self.dataset[0], 0, 0)])
        return Packed(block, [self._part(*entry) for entry in zip(*(column.tolist() for column in block), strict=True)])

    def _part(self, index: int, offset: int, length: int) -> Any:
        sample = self.dataset[index]
        found = _length(sample, index)
        recorded = offset + length if self.lengths is None else int(self.lengths[index])
        if found != recorded:
            hint = "; if the sampler splits or truncates, give BLoadDataset its lengths" if self.lengths is None else ""
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
    if not isinstance(leaf, torch.Tensor | np.ndarray) or leaf.ndim == 0:
        raise ConfigError(
            f"dataset[{index}] must be a tensor or array with time first, or a tuple, list or dict of them, got "
            f"{type(leaf).__name__} in it; give each one value for each element of its sequence"
        )
    return int(leaf.shape[0])
