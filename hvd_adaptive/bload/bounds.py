"""Lower bounds on the number of blocks: no packing, however clever, takes fewer."""

import numpy as np

from hvd_adaptive.bload.draws import I32
from hvd_adaptive.bload.layout import Limit, bounds_of


def ceil_bound(lengths: I32, limit: Limit) -> int:
    """All elements over the block length, rounded up; and all sequences over what a block may hold of them."""
    return max(-(-int(lengths.sum(dtype=np.int64)) // limit.length), _by_number(lengths, limit))


def l2_bound(lengths: I32, limit: Limit) -> int:
    """Martello and Toth's L2, never below :func:`ceil_bound`.

    For a threshold a up to half a block: sequences longer than the block less a go alone; the others longer than half a block go
    apart; those from a to half a block need blocks for what does not fit beside the second kind. The best a is a length, or 0.

    Source: Martello and Toth 1990, "Lower bounds and reduction procedures for the bin packing problem", Discrete Appl. Math. 28.
    """
    values, numbers = np.unique(lengths.astype(np.int64), return_counts=True)
    count, total = bounds_of(numbers), bounds_of(values * numbers)  # of all shorter than the i-th value
    half = np.searchsorted(values, limit.length // 2, side="right")
    thresholds = np.concatenate([np.zeros(1, np.int64), values[:half]])
    least = np.searchsorted(values, thresholds)
    alone = np.searchsorted(values, limit.length - thresholds, side="right")
    apart = count[alone] - count[half]
    room = apart * limit.length - (total[alone] - total[half])
    beside = np.maximum(-(-(total[half] - total[least] - room) // limit.length), 0)
    return max(int((count[-1] - count[alone] + apart + beside).max()), _by_number(lengths, limit))


def most_sequences(lengths: I32, limit: Limit) -> int:
    """The most sequences that any block can hold, however they are packed: as many of the shortest as fit; 1 for none at all."""
    fitting = int(np.searchsorted(bounds_of(np.sort(lengths)), limit.length, side="right")) - 1
    return max(1, min(fitting, limit.sequences or fitting))


def _by_number(lengths: I32, limit: Limit) -> int:
    return -(-lengths.size // limit.sequences) if limit.sequences else 0
