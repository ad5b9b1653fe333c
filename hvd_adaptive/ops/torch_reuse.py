"""Long vectors of a host's memory that serve again.

Whatever is allocated anew for each step, the system hands out page by page and clears first, which takes three times as long as
writing zeros over what is there.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_users: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""How many hold a storage: tensors, their views, whoever has their memory. Where torch does not tell, nothing serves again."""


class Reused:
    """Keeps the last vector of each size and dtype, and gives it out again once nobody else holds it or a part of it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, torch.dtype], tuple[Tensor, int]] = {}

    def zeros(self, n: int, dtype: torch.dtype) -> Tensor:
        """``dtype[n]`` of zeros, which belongs to the caller for as long as it is held."""
        kept, alone = self._kept.pop((n, dtype), (None, 0))  # another thread finds none meanwhile
        if kept is None or _held(kept) != alone:
            kept = torch.zeros(n, dtype=dtype)
            alone = _held(kept)
            given = kept.view(-1)
        else:
            given = kept.view(-1).zero_()
        if _users is not None:
            self._kept[n, dtype] = kept, alone
        return given


def _held(x: Tensor) -> int:
    """How many hold the storage of ``x``."""
    return 0 if _users is None else _users(x.untyped_storage()._cdata)
