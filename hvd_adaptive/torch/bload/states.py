"""Recurrent models over blocks: no state passes from one sequence to the next."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.errors import ConfigError

Hidden = TypeVar("Hidden")


def reset_states(hidden: Hidden, starts: torch.Tensor, time: int, batch_dim: int = -2) -> Hidden:
    """Zero the state of those rows in which a sequence starts at ``time``; call it before that time is run.

    A split sequence starts like any other. Who kept the state of its earlier part writes it into the result.

    Args:
        hidden: a tensor, or a tuple, list or dict of them, such as an LSTM's; may be None, as before the first time.
        starts: ``i64[b, k]``, a batch's.
        time: from 0.
        batch_dim: where the state has its b rows: next to last in torch's own modules and cells.

    Returns:
        The state, in the same structure; the given one stays as it was.

    Raises:
        ConfigError: if the state has other than b rows there.
    """
    fresh = (starts == time).any(1)
    found: Hidden = _zeroed(hidden, fresh, batch_dim)
    return found


def _zeroed(hidden: Any, fresh: torch.Tensor, batch_dim: int) -> Any:
    if hidden is None:
        return None
    if isinstance(hidden, Mapping):
        return {key: _zeroed(value, fresh, batch_dim) for key, value in hidden.items()}
    if isinstance(hidden, tuple | list):
        parts = [_zeroed(value, fresh, batch_dim) for value in hidden]
        return type(hidden)(*parts) if hasattr(hidden, "_fields") else type(hidden)(parts)
    dims = hidden.dim()
    if not -dims <= batch_dim < dims or hidden.shape[batch_dim] != fresh.numel():
        raise ConfigError(
            f"reset_states: the state must have {fresh.numel()} rows in dimension {batch_dim}, got one of shape "
            f"{tuple(hidden.shape)}; give batch_dim"
        )
    shape = [1] * dims
    shape[batch_dim] = -1
    return hidden.masked_fill(fresh.view(shape), 0)


def run_packed(rnn: nn.RNNBase, data: torch.Tensor, blocks: Sequence[Block]) -> torch.Tensor:
    """What ``rnn`` makes of each sequence by itself, from a state of zeros.

    One call for all sequences of all blocks, and none for padding; exact for both directions and several layers.

    Args:
        rnn: ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN``; its ``batch_first`` does not matter.
        data: ``[b, T, features]``.
        blocks: b of them, a batch's.

    Returns:
        ``[b, T, output features]``, 0 for padding.

    Raises:
        ConfigError: if ``data`` is not of that shape.
    """
    if data.dim() != 3 or data.shape[0] != len(blocks):
        raise ConfigError(f"run_packed: data must be [{len(blocks)}, T, features] for as many blocks, got {list(data.shape)}")
    length = data.shape[1]
    cuts = [block.lengths.tolist() for block in blocks]
    parts = [part for row, cut in zip(data, cuts, strict=True) for part in row[: sum(cut)].split(cut)]
    # Parameters get gradients, of zero, where all blocks are empty: other ranks wait for them.
    nothing = data[0, :1].clone().zero_()  # padding may be no number, and 0 times that is none
    output, _ = rnn(pack_sequence(parts or [nothing], enforce_sorted=False))
    joined = torch.cat(unpack_sequence(output)) if parts else output.data * 0
    index = torch.cat([row * length + torch.arange(sum(cut)) for row, cut in enumerate(cuts)]) if parts else torch.tensor([0])
    flat = joined.new_zeros(len(blocks) * length, joined.shape[-1])
    return flat.index_copy(0, index.to(data.device), joined).view(len(blocks), length, -1)
