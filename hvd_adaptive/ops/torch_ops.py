"""The torch backend."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hvd_adaptive.ops import ascending, mixing, packing, selection, torch_device
from hvd_adaptive.ops.blocks import BLOCK
from hvd_adaptive.ops.host_ops import HostOps
from hvd_adaptive.ops.torch_device import is_numpys, on_host
from hvd_adaptive.ops.torch_reuse import Reused
from hvd_adaptive.ops.verdicts import Verdict

_DTYPES = {
    name: getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_HOST, _NOTHING = HostOps(), np.empty(0)


class TorchOps:
    """:class:`hvd_adaptive.ops.Ops` on ``torch.Tensor``, on whatever device the tensors live."""

    def __init__(self) -> None:
        self._reused = Reused()

    def dtype(self, x: Tensor) -> str:
        return _NAMES[x.dtype]

    def size(self, x: Tensor) -> int:
        return x.numel()

    def nbytes(self, x: Tensor) -> int:
        return x.nbytes

    def from_numpy(self, x: npt.NDArray[Any], like: Tensor | None = None) -> Tensor:
        return torch.tensor(x) if like is None or on_host(like) else torch_device.sent(x, like.device)

    def to_numpy(self, x: Tensor) -> npt.NDArray[Any]:
        return np.asarray(x.numpy(force=True))

    def zeros(self, n: int, dtype: str, like: Tensor) -> Tensor:
        if on_host(like) and n >= selection.LONG and "float" in dtype:  # of others lengths may differ by step
            return self._reused.zeros(n, _DTYPES[dtype])
        return torch.zeros(n, dtype=_DTYPES[dtype], device=like.device)

    def arange(self, n: int, like: Tensor) -> Tensor:
        return torch.arange(n, device=like.device)

    def flatten(self, x: Tensor) -> Tensor:
        return x.detach().reshape(-1).contiguous()

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x.to(_DTYPES[dtype])

    def where(self, mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(mask, x, y)

    def any(self, mask: Tensor) -> Verdict:
        return bool(mask.any()) if on_host(mask) else mask.any().view(1)

    def all_finite(self, x: Tensor) -> Verdict:
        if not on_host(x):
            return torch_device.all_finite(x)
        # A sum is one fast pass and never finite if an element is not; the few that overflow for other reasons get a closer look.
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        if math.isfinite(x.sum(dtype=wide)):
            return True
        smallest, largest = torch.aminmax(x)
        return math.isfinite(smallest) and math.isfinite(largest)

    def starts_with_nan(self, x: Tensor) -> Verdict:
        return x.numel() > 0 and bool(torch.isnan(x[0])) if on_host(x) else torch_device.starts_with_nan(x)

    def full_like(self, x: Tensor, value: float) -> Tensor:
        return torch.full_like(x, value)

    def slice(self, x: Tensor, start: int, stop: int) -> Tensor:
        return x[start:stop]

    def set_slice(self, x: Tensor, start: int, values: Tensor) -> Tensor:
        x[start : start + values.numel()].copy_(values)
        return x

    def add_slice(self, x: Tensor, start: int, values: Tensor, weight: float = 1.0) -> Tensor:
        part = x[start : start + values.numel()]
        part.add_(values) if weight == 1.0 else part.add_(values, alpha=weight)
        return x

    def add_finite(self, x: Tensor, start: int, values: Tensor) -> tuple[Tensor, Verdict]:
        if not on_host(x):
            return x, torch_device.add_finite(x, start, values)
        if is_numpys(x) and is_numpys(values):
            return x, _HOST.add_finite(x.numpy(), start, values.numpy())[1]
        total = (x[start : start + values.numel()] + values).to(x.dtype)
        if not self.all_finite(total):
            return x, False
        return self.set_slice(x, start, total), True

    def scale(self, x: Tensor, weight: float) -> Tensor:
        return x * weight

    def shift_left(self, x: Tensor, bits: int) -> Tensor:
        return x << bits

    def shift_right(self, x: Tensor, bits: int) -> Tensor:
        return x >> bits

    def take(self, x: Tensor, positions: Tensor) -> Tensor:
        return x.index_select(0, positions)

    def clear(self, x: Tensor, positions: Tensor) -> Tensor:
        if is_numpys(x):
            _HOST.clear(x.numpy(), positions.numpy())
            return x
        return x.index_fill_(0, positions.long(), 0)

    def scatter_add(self, x: Tensor, positions: Tensor, values: Tensor) -> Tensor:
        if is_numpys(x) and is_numpys(values):
            _HOST.scatter_add(x.numpy(), positions.numpy(), values.numpy())
            return x
        return x.index_add_(0, positions, values)

    def top_positions(self, x: Tensor, k: int) -> Tensor:
        if k >= x.numel():
            return torch.arange(x.numel(), device=x.device)
        if is_numpys(x):
            found = selection.top_positions(x.numpy(), k)
            if found is not None:
                return torch.from_numpy(found)
        return self.ascending(torch.topk(x.abs(), k, sorted=False).indices)

    def largest_first(self, x: Tensor) -> Tensor:
        if is_numpys(x):
            return torch.from_numpy(_HOST.largest_first(x.numpy()))
        return torch.sort(x.abs(), descending=True, stable=True).indices

    def count(self, mask: Tensor) -> int | Tensor:
        return int(mask.count_nonzero()) if on_host(mask) else mask.count_nonzero().view(1)

    def smallest(self, x: Tensor) -> Tensor:
        return x.amin().view(1)

    def nonzero(self, mask: Tensor, count: int | None = None) -> Tensor:
        if is_numpys(mask):
            return torch.from_numpy(_HOST.nonzero(mask.numpy(), count))
        return (mask.nonzero() if count is None else torch.nonzero_static(mask, size=count)).view(-1)

    def ascending(self, positions: Tensor) -> Tensor:
        return torch.from_numpy(_HOST.ascending(positions.numpy())) if is_numpys(positions) else torch.sort(positions).values

    def sign(self, x: Tensor) -> Tensor:
        return torch.sign(x)

    def floor(self, x: Tensor) -> Tensor:
        return torch.floor(x)

    def at_most(self, x: Tensor, limit: float) -> Tensor:
        return torch.clamp(x, max=limit)

    def row_max(self, x: Tensor, width: int) -> Tensor:
        return torch.from_numpy(_HOST.row_max(x.numpy(), width)) if is_numpys(x) else self._rows(x, width).abs().amax(1)

    def row_sum(self, x: Tensor, width: int) -> Tensor:
        if is_numpys(x):
            return torch.from_numpy(_HOST.row_sum(x.numpy(), width))
        return self._rows(x, width).sum(1, dtype=torch.float64)

    def row_norm(self, x: Tensor, width: int) -> Tensor:
        return torch.from_numpy(_HOST.row_norm(x.numpy(), width)) if is_numpys(x) else torch_device.row_norm(self._rows(x, width))

    def repeat(self, x: Tensor, times: int, n: int) -> Tensor:
        return x if x.numel() == 1 else x.repeat_interleave(times)[:n]

    def matrix(self, x: Tensor, rows: int, columns: int) -> Tensor:
        if x.numel() < rows * columns:
            x = torch.nn.functional.pad(x, (0, rows * columns - x.numel()))
        return x.view(rows, columns)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    def transpose(self, x: Tensor) -> Tensor:
        return x.t()

    def orthonormal(self, x: Tensor) -> Tensor:
        return torch.linalg.qr(x)[0]

    def uniform(self, n: int, keys: Sequence[tuple[int, int]], like: Tensor) -> Tensor:
        return torch.from_numpy(_HOST.uniform(n, keys, _NOTHING)) if on_host(like) else mixing.uniform(self, n, keys, like)

    def sample(self, k: int, n: int, keys: Sequence[tuple[int, int]], bits: int, like: Tensor) -> Tensor:
        # How far positions must be walked, only they tell; a device would have to be asked turn by turn.
        positions = _HOST.sample(k, n, keys, bits, _NOTHING)
        return torch.from_numpy(positions) if on_host(like) else torch_device.sent(positions, like.device)

    def levels_of(self, x: Tensor, scale: Tensor, width: int, first: int, levels: int, numbers: Tensor) -> Tensor:
        if on_host(x):
            return torch.from_numpy(_HOST.levels_of(x.numpy(), scale.numpy(), width, first, levels, numbers.numpy()))
        return mixing.levels_of(self, x, scale, width, first, levels, numbers)

    def at_once(self, x: Tensor) -> int:
        return BLOCK if on_host(x) else max(1, x.numel())

    def pack(self, codes: Tensor, bits: int) -> Tensor:
        return torch.from_numpy(_HOST.pack(codes.numpy(), bits)) if on_host(codes) else packing.pack(self, codes, bits)

    def unpack(self, packed: Tensor, bits: int, n: int, dtype: str) -> Tensor:
        if on_host(packed):
            return torch.from_numpy(_HOST.unpack(packed.numpy(), bits, n, dtype))
        return packing.unpack(self, packed, bits, n, dtype)

    def encode_positions(self, positions: Tensor, n: int) -> Tensor:
        if on_host(positions):
            return torch.from_numpy(_HOST.encode_positions(positions.numpy(), n))
        return ascending.encode(self, positions, n)

    def decode_positions(self, coded: Tensor, k: int, n: int) -> Tensor:
        if on_host(coded):
            return torch.from_numpy(_HOST.decode_positions(coded.numpy(), k, n))
        return ascending.decode(self, coded, k, n)

    def _rows(self, x: Tensor, width: int) -> Tensor:
        return self.matrix(x, -(-x.numel() // width), width)

    def to_bfloat16_bits(self, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).view(torch.int16)

    def from_bfloat16_bits(self, bits: Tensor, dtype: str) -> Tensor:
        return bits.view(torch.bfloat16).to(_DTYPES[dtype])

    def to_bytes(self, x: Tensor) -> Tensor:
        return x.view(torch.uint8)

    def from_bytes(self, raw: Tensor, dtype: str) -> Tensor:
        return raw.view(_DTYPES[dtype])

    def concat(self, arrays: list[Tensor]) -> Tensor:
        return arrays[0] if len(arrays) == 1 else torch.cat(arrays)
