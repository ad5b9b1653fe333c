"""Next fit: sequences in random order; one that does not fit starts the next block.

Contract  at most twice the fewest possible blocks.
Source    Johnson 1974, "Fast algorithms for bin packing", J. Comput. Syst. Sci. 8(3).
Differs   where each block would end is found for all sequences at once, from the sums of their lengths.
"""

from array import array

import numpy as np

from hvd_adaptive.bload.draws import I32, Draws
from hvd_adaptive.bload.layout import Layout, Limit


def next_fit(lengths: I32, limit: Limit, draws: Draws) -> Layout:
    """Pack ``lengths i32[n]``, each from 1 to the limit's."""
    order = draws.permutation(lengths.size)
    sums = np.cumsum(lengths[order], dtype=np.int64)
    ends = np.searchsorted(sums, sums - lengths[order] + limit.length, side="right")
    if limit.sequences is not None:
        ends = np.minimum(ends, np.arange(lengths.size) + limit.sequences)
    following, indptr = ends.data, array("q", [0])  # neither holds Python's own integers, of 32 bytes each
    while indptr[-1] < lengths.size:
        indptr.append(following[indptr[-1]])
    return Layout(order, np.array(indptr, np.int64))
