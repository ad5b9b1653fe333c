"""Whole numbers side by side in the lanes of int32 words, so wide that an allreduce adds up every rank's without a carry."""

from dataclasses import dataclass

from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops import Array, Ops

_USABLE_BITS = 31
"""Of an int32, whose sign stays clear."""


@dataclass(frozen=True)
class Lanes:
    """How codes up to ``top`` lie in words so that those of ``ranks`` ranks sum.

    Raises:
        ConfigError: if no word can hold the sum.
    """

    top: int
    ranks: int

    def __post_init__(self) -> None:
        if self.bits > _USABLE_BITS:
            raise ConfigError(
                f"codes up to {self.top} of {self.ranks} ranks add up to more than a lane of {_USABLE_BITS} bits can hold; use "
                "exchange='gather', or fewer levels"
            )

    @property
    def bits(self) -> int:
        """Of one lane."""
        return (self.top * self.ranks).bit_length()

    @property
    def in_a_word(self) -> int:
        """Lanes of one word."""
        return _USABLE_BITS // self.bits

    def pack(self, ops: Ops, codes: Array) -> Array:
        """``i32[words]``; lane ``i`` holds the codes from ``i * words`` on, so that every step works on contiguous vectors."""
        n = ops.size(codes)
        words = -(-n // self.in_a_word)
        packed = ops.zeros(words, "int32", like=codes)
        for lane, start in enumerate(range(0, n, words)):
            part = ops.cast(ops.slice(codes, start, min(start + words, n)), "int32")
            packed = ops.add_slice(packed, 0, ops.shift_left(part, lane * self.bits))
        return packed

    def unpack(self, ops: Ops, packed: Array, n: int) -> Array:
        """``i32[n]``: the sums of the codes."""
        mask = (1 << self.bits) - 1
        lanes = [ops.shift_right(packed, lane * self.bits) & mask for lane in range(self.in_a_word)]
        return ops.slice(ops.concat(lanes), 0, n)
