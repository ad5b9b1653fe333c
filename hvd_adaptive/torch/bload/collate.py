"""Blocks to tensors."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from hvd_adaptive import checks
from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.packed import Packed
from hvd_adaptive.bload.samples import apart, mapped
from hvd_adaptive.bload.tables import tables
from hvd_adaptive.errors import ConfigError

Nested: TypeAlias = Any
"""A tensor, or a tuple or dict of them."""

IGNORED = -100
"""What torch's cross entropy leaves out."""
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, eq=False)
class BLoadBatch:
    """b blocks of T elements.

    Attributes:
        data: ``[b, T, ...]``, in the structure of the samples.
        targets: the same of the targets, or None.
        valid: ``bool[b, T]``, False for padding.
        starts: ``i64[b, k]``, the reset table: where each sequence starts; T where a block has fewer than k.
        cu_seqlens: ``i32[s + 1]``, where each segment of the b * T elements starts; padding is a segment of its own.
        position_ids: ``i64[b, T]``, places in the sequence, also in a split one.
        segment_ids: ``i64[b, T]``, sequences of the block from 1; 0 for padding.
        blocks: which sequences they hold.
    """

    data: Nested
    targets: Nested
    valid: torch.Tensor
    starts: torch.Tensor
    cu_seqlens: torch.Tensor
    position_ids: torch.Tensor
    segment_ids: torch.Tensor
    blocks: tuple[Block, ...]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "BLoadBatch":
        """The batch with all tensors on ``device``."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "BLoadBatch":
        """The batch with all tensors in pinned memory; ``DataLoader(pin_memory=True)`` calls it."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, function: Any) -> "BLoadBatch":
        fields = {name: value for name, value in vars(self).items() if name != "blocks" and value is not None}
        return replace(self, **{name: mapped(function, value) for name, value in fields.items()})


@dataclass(frozen=True)
class Collate:
    """See :func:`bload_collate`."""

    block_length: int
    max_sequences: int | None = None
    padding: float = 0
    target_padding: float | None = None
    targets: str | None = None

    def __call__(self, items: Sequence[Packed]) -> BLoadBatch:
        blocks = tuple(item.block for item in items)
        arrays = tables(blocks, self.block_length, self.max_sequences)
        rows = [mapped(functools.partial(_row, item.block), *item.samples) for item in items]
        data, targets = apart(rows, self.targets, "bload_collate")
        return BLoadBatch(
            mapped(lambda *rows: self._stacked(rows, self.padding), *data),
            None if targets is None else mapped(lambda *rows: self._stacked(rows, self.target_padding), *targets),
            blocks=blocks,
            **{name: torch.from_numpy(array) for name, array in arrays._asdict().items()},
        )

    def _stacked(self, rows: Sequence[torch.Tensor], padding: float | None) -> torch.Tensor:
        """``[b, T, ...]`` from one tensor ``[at most T, ...]`` for each block."""
        shapes = dict.fromkeys(tuple(row.shape[1:]) for row in rows)
        if len(shapes) > 1:  # else torch would repeat the smaller ones
            found = ", ".join(map(str, shapes))
            raise ConfigError(f"bload_collate: samples must agree in all dimensions but the first, got [length, ...] of {found}")
        dtype = functools.reduce(torch.promote_types, (row.dtype for row in rows))
        if padding is None:
            padding = IGNORED if dtype in _SIGNED else 0
        stacked = rows[0].new_full((len(rows), self.block_length, *rows[0].shape[1:]), padding, dtype=dtype)
        for number, row in enumerate(rows):
            stacked[number, : row.shape[0]] = row
        return stacked


def bload_collate(
    block_length: int,
    max_sequences: int | None = None,
    padding: float = 0,
    target_padding: float | None = None,
    targets: str | None = None,
) -> Collate:
    """A ``collate_fn`` that makes a :class:`BLoadBatch` of blocks.

    A sample that is a tuple or list is data and, last, its targets; of more than two parts, data is a tuple. One that is a dict
    is all data, but for the key ``targets``. Split sequences have their own place in ``position_ids``, but start like any other:
    what came before is in another block, perhaps on another rank.

    Args:
        block_length: the sampler's.
        max_sequences: of a block. All shapes are then constant, as compiled graphs need; the sampler's
            ``max_sequences_per_block`` keeps blocks to it. None for tables as wide as the batch needs.
        padding: fills up data.
        target_padding: fills up targets; None for -100, which torch's cross entropy leaves out, in signed whole numbers, and 0 in
            others.
        targets: key of the targets in samples that are dicts.

    Raises:
        ConfigError: if an argument is not legal.
    """
    block_length = checks.count("bload_collate", "block_length", block_length, 2**31 - 1, "the sampler's")
    if max_sequences is not None:
        max_sequences = checks.count("bload_collate", "max_sequences", max_sequences, hint="None for as many as there are")
    return Collate(block_length, max_sequences, padding, target_padding, targets)


def _row(block: Block, *parts: Any) -> torch.Tensor:
    """A block's samples one after the other."""
    for part in parts:
        if not isinstance(part, torch.Tensor | np.ndarray) or part.ndim == 0:
            raise ConfigError(
                "bload_collate: a sample must be a tensor or array with time first, or a tuple, list or dict of them, got "
                f"{type(part).__name__} in it; give each one value for each element of its sequence"
            )
    found, recorded = [int(part.shape[0]) for part in parts], block.lengths.tolist() or [0]
    if found != recorded:
        raise ConfigError(
            f"bload_collate: the samples of a block have {found} elements, but their lengths were {recorded}; lengths, or what "
            "length_fn= returns, must count the elements that are given"
        )
    return torch.cat([_tensor(part) if isinstance(part, np.ndarray) else part for part in parts])


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A copy, because torch warns of arrays that are read-only, and takes none that run backwards or of other byte orders."""
    return torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
