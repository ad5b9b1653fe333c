"""The mean over all elements of all ranks that are no padding."""

import horovod.torch as hvd
import torch

from hvd_adaptive import checks
from hvd_adaptive.binding.collective import joined
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.torch.collective import HorovodCollective


def valid_mean(
    losses: torch.Tensor,
    valid: torch.Tensor,
    process_set: hvd.ProcessSet = hvd.global_process_set,
    total: int | None = None,
) -> torch.Tensor:
    """This rank's part of the mean loss, such that Horovod's Average of the gradients is the gradient of the global mean.

    Ranks hold unlike numbers of elements, so the average of their own means weights elements unequally. Here each rank's sum is
    divided by the mean number per rank. Averaged over the ranks, the result is the mean over all elements. Where nothing is
    valid, it is 0 and so are the gradients, whatever the losses of padding are. Losses of 16 bits are added up in 32.

    Args:
        losses: of any shape, one for each element, such as ``cross_entropy(..., reduction="none")``.
        valid: ``bool`` of the same shape.
        process_set: the ranks whose gradients are averaged; all by default. Each must call this, unless ``total`` is given.
        total: elements that are valid on all of them, if known: ``int(sampler.filled[step].sum())``. None to add them up by one
            small collective.

    Raises:
        ConfigError: if the shapes differ, ``valid`` is not boolean, ``total`` is no whole number from 0, or this rank is not in
            the process set.
    """
    if losses.shape != valid.shape or valid.dtype != torch.bool:
        raise ConfigError(
            f"valid_mean: valid must be a bool of the losses' shape {list(losses.shape)}, got {valid.dtype} of "
            f"{list(valid.shape)}; reduce the losses to one for each element, or expand valid"
        )
    # Chosen, not multiplied: the loss of padding may be infinite, and 0 times that is NaN.
    own = torch.where(valid, losses, 0).sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    collective = joined(HorovodCollective(process_set), "valid_mean")
    if total is not None:
        return own * (collective.size / max(1, checks.count("valid_mean", "total", total, 2**62, "of all ranks", least=0)))
    name = f"hvd_adaptive.bload.valid.{process_set.process_set_id}"
    number = collective.wait(collective.start("sum", valid.sum().view(1), name))[0]
    return own * collective.size / number.clamp(min=1)
