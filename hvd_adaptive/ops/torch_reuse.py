"""Long vectors of a host's memory that serve again.

Whatever is allocated anew for each step, the system hands out page by page and clears first, which takes three times as long as
writing zeros over what is there.
"""

from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_users: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""How many hold a storage: tensors, their views, whoever has their memory. Where torch does not tell, nothing serves again."""


class Reused:
    """Keeps vectors of each size and dtype, and gives one out again once nobody else holds it or a part of it."""

    def __init__(self) -> None:
        self._kept = defaultdict[tuple[int, torch.dtype], deque[tuple[Tensor, int]]](deque)

    def zeros(self, n: int, dtype: torch.dtype) -> Tensor:
        """``dtype[n]`` of zeros, which belongs to the caller for as long as it is held."""
        kept = self._kept[n, dtype]
        for _ in range(len(kept)):
            try:
                vector, alone = kept.popleft()  # another thread does not find it meanwhile
            except IndexError:
                break
            free = _held(vector) == alone
            given = vector.view(-1).zero_() if free else vector
            kept.append((vector, alone))
            if free:
                return given
        vector = _zeros(n, dtype)
        alone, given = _held(vector), vector.view(-1)
        if _users is not None:
            kept.append((vector, alone))
        return given


def _zeros(n: int, dtype: torch.dtype) -> Tensor:
    """By way of numpy, which asks the system for large pages: few elements far apart are then found a third sooner."""
    if dtype == torch.bfloat16:  # which numpy does not know
        return torch.zeros(n, dtype=dtype)
    return torch.from_numpy(np.zeros(n, str(dtype).removeprefix("torch.")))


def _held(x: Tensor) -> int:
    """How many hold the storage of ``x``."""
    return 0 if _users is None else _users(x.untyped_storage()._cdata)
