"""Lengths to blocks."""

from hvd_adaptive import checks
from hvd_adaptive.bload.best_fit import best_fit
from hvd_adaptive.bload.blocks import Blocks
from hvd_adaptive.bload.draws import Draws
from hvd_adaptive.bload.layout import Limit, Policy
from hvd_adaptive.bload.lengths import MOST, read
from hvd_adaptive.bload.next_fit import next_fit
from hvd_adaptive.bload.oversize import OVERLONG
from hvd_adaptive.bload.random_fill import random_fill

POLICIES: dict[str, Policy] = {"best_fit": best_fit, "random": random_fill, "next_fit": next_fit}
"""Every policy by name."""


def pack(
    lengths: object,
    block_length: int | None = None,
    policy: str = "best_fit",
    seed: int = 0,
    epoch: int = 0,
    overlong: str = "error",
    max_sequences_per_block: int | None = None,
) -> Blocks:
    """Pack sequences into blocks of equal length, each into one block.

    The same arguments give the same blocks on every rank and platform; no global random state is read or touched.

    Args:
        lengths: whole numbers from 1: a list, an array or a tensor on a CPU. A sequence's place in it is its id.
        block_length: elements of a block; None for the longest sequence.
        policy: ``"best_fit"`` pads least; ``"random"`` is the paper's; ``"next_fit"`` is what most data loaders do.
        seed: of the random choices.
        epoch: makes them differ from epoch to epoch.
        overlong: what becomes of sequences longer than a block: ``"error"`` refuses them, ``"split"`` packs their parts,
            ``"truncate"`` keeps as much as a block holds, ``"drop"`` leaves them out.
        max_sequences_per_block: or None for any number.

    Raises:
        ConfigError: if an argument is not legal; of lengths, the first illegal one is named with its index.
    """
    checks.one_of("pack", "policy", policy, tuple(POLICIES))
    checks.one_of("pack", "overlong", overlong, tuple(OVERLONG))
    seed = checks.count("pack", "seed", seed, 2**63 - 1, least=-(2**63))
    epoch = checks.count("pack", "epoch", epoch, 2**63 - 1, least=0)
    if max_sequences_per_block is not None:
        max_sequences_per_block = checks.count(
            "pack", "max_sequences_per_block", max_sequences_per_block, hint="None for any number"
        )
    if block_length is not None:
        block_length = checks.count("pack", "block_length", block_length, MOST, "None for the longest sequence")
    whole = read(lengths)
    length = block_length or int(whole.max(initial=1))
    pieces = OVERLONG[overlong](whole, length)
    order, indptr = POLICIES[policy](pieces.lengths, Limit(length, max_sequences_per_block), Draws(seed, epoch))
    return Blocks(
        length,
        pieces.ids[order],
        pieces.offsets[order],
        pieces.lengths[order],
        indptr,
        max_sequences_per_block,
        overlong=int((whole > length).sum()),
        deleted=int(whole.sum(dtype="int64") - pieces.lengths.sum(dtype="int64")),
    )
