"""Random fill: a block takes random sequences for as long as any that is left fits.

Contract  a block's room is less than the shortest sequence that was left when it was closed.
Source    Ruschel, Iftekhar, Manjunath, You 2023, "BLoad", arXiv:2310.10879, and the program they published: first a length, each
          distinct one that fits as likely, then a sequence of that length.
Differs   every sequence of a length is as likely (the program prefers the first); the blocks come in random order, for the
          last ones hold what was left over.
"""

from array import array
from bisect import bisect_right

import numpy as np

from hvd_adaptive.bload.draws import I32, Draws, ordered
from hvd_adaptive.bload.layout import Layout, Limit, shuffled_blocks


def random_fill(lengths: I32, limit: Limit, draws: Draws) -> Layout:
    """Pack ``lengths i32[n]``, each from 1 to the limit's."""
    shuffle = draws.permutation(lengths.size)
    rising = shuffle[ordered(lengths[shuffle])]  # the shortest first, those of a length in random order
    picked, sizes = _pick(lengths, limit, draws)
    sequences = np.empty_like(rising)
    sequences[ordered(picked)] = rising  # the first pick of a length gets the first sequence of that length
    block_of = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    order, indptr = shuffled_blocks(block_of, None, draws)
    return Layout(sequences[order], indptr)


def _pick(lengths: I32, limit: Limit, draws: Draws) -> tuple[I32, I32]:
    """The lengths ``i32[n]`` in the order they are picked, and how many ``i32[blocks]`` of them each block holds."""
    values, numbers = np.unique(lengths, return_counts=True)
    distinct, counts = values.tolist(), numbers.tolist()
    picked, starts = array("i"), array("q", [0])  # neither holds Python's own integers, of 32 bytes each
    fractions = draws.fractions()
    most = limit.sequences or lengths.size
    while distinct:
        room, last = limit.length, starts[-1] + most
        while len(picked) < last and (fitting := bisect_right(distinct, room)):
            chosen = int(next(fractions) * fitting)
            length = distinct[chosen]
            picked.append(length)
            room -= length
            counts[chosen] -= 1
            if not counts[chosen]:
                del distinct[chosen], counts[chosen]
        starts.append(len(picked))
    return np.array(picked, np.int32), np.diff(starts).astype(np.int32)
