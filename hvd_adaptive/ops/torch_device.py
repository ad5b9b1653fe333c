"""What torch does on an accelerator where numpy does it on a host; nothing here makes the host wait for it."""

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def on_host(x: Tensor) -> bool:
    """True if ``x`` lies in the host's memory."""
    return x.device.type == "cpu"


def is_numpys(x: Tensor) -> bool:
    """True if numpy can work on the memory of ``x``."""
    return on_host(x) and x.dtype != torch.bfloat16


def sent(x: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A copy of ``x``, which the ``device`` fetches from locked pages when it comes to it; from others the host would wait."""
    return torch.tensor(x).pin_memory().to(device, non_blocking=True)


def all_finite(x: Tensor) -> Tensor:
    """``bool[1]``: False if any element is NaN or infinite, in one pass without a temporary."""
    if not x.numel():
        return torch.ones(1, dtype=torch.bool, device=x.device)
    smallest, largest = torch.aminmax(x)  # NaN if any is
    return (torch.isfinite(smallest) & torch.isfinite(largest)).view(1)


def starts_with_nan(x: Tensor) -> Tensor:
    """``bool[1]``: True if ``x`` has a first element and it is NaN."""
    return torch.isnan(x[:1]) if x.numel() else torch.zeros(1, dtype=torch.bool, device=x.device)


def add_finite(x: Tensor, start: int, values: Tensor) -> Tensor:
    """Adds ``values`` to ``x`` from ``start`` on if all sums are finite; ``bool[1]`` tells whether they are."""
    part = x[start : start + values.numel()]
    total = (part + values).to(x.dtype)
    finite = all_finite(total)
    part.copy_(torch.where(finite, total, part))
    return finite


def row_norm(rows: Tensor) -> Tensor:
    """``f[rows]``: the Euclidean norm of each of ``rows`` f[rows, width], in its dtype."""
    if rows.dtype == torch.float64:  # squares of the largest floats would overflow, of the smallest vanish
        largest = rows.abs().amax(1)
        norms = largest * torch.linalg.vector_norm(
            rows / torch.where(largest > 0, largest, torch.ones_like(largest))[:, None], dim=1
        )
    else:
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.clamp(max=torch.finfo(rows.dtype).max).to(rows.dtype)
