"""Where training stands in an epoch, and which blocks are left, on any number of ranks."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hvd_adaptive import checks
from hvd_adaptive.bload.blocks import Blocks
from hvd_adaptive.bload.draws import I32
from hvd_adaptive.bload.lengths import read
from hvd_adaptive.bload.pack import pack
from hvd_adaptive.errors import ConfigError, StateError

_FORMAT = 1
_KEYS = {"format", "epoch", "described", "hash", "cuts"}


class Options(NamedTuple):
    """How every epoch is packed, see :func:`hvd_adaptive.bload.pack`.

    Attributes:
        shuffle: pack every epoch anew; else all are as epoch 0.
    """

    block_length: int | None = None
    policy: str = "best_fit"
    seed: int = 0
    shuffle: bool = True
    overlong: str = "error"
    max_sequences_per_block: int | None = None


class Cut(NamedTuple):
    """``done`` batches of ``batch_size`` blocks on each of ``size`` ranks; the blocks after them are left."""

    size: int
    batch_size: int
    done: int


@dataclass(frozen=True, eq=False)
class Epoch:
    """The blocks of one epoch that are left after all cuts.

    The blocks are packed once and then only dealt out anew, so that no sequence is seen twice or never when ranks come or go.

    Args:
        lengths: of all sequences, as :func:`hvd_adaptive.bload.pack` takes them.
        options: how they are packed.
        number: of the epoch.
        cuts: what was done on other numbers of ranks or with other batch sizes, in this order.

    Raises:
        ConfigError: if the lengths or options are not legal.
    """

    lengths: I32
    options: Options
    number: int = 0
    cuts: tuple[Cut, ...] = ()

    def __post_init__(self) -> None:
        plain = (value.item() if isinstance(value, np.generic) else value for value in self.options)
        object.__setattr__(self, "options", Options._make(plain))  # states are plain values, whatever users count with
        checks.flag("pack", "shuffle", self.options.shuffle)
        object.__setattr__(self, "number", checks.count("set_epoch", "epoch", self.number, 2**63 - 1, least=0))
        object.__setattr__(self, "lengths", read(self.lengths))

    @cached_property
    def packed(self) -> Blocks:
        """All blocks of the epoch."""
        options = self.options._asdict()
        return pack(self.lengths, epoch=self.number if options.pop("shuffle") else 0, **options)

    @cached_property
    def left(self) -> Blocks:
        """The blocks after all cuts."""
        blocks = self.packed
        for cut in self.cuts:
            blocks = blocks.shard(0, cut.size, cut.batch_size).rest(cut.done)
        return blocks

    @property
    def same_number(self) -> bool:
        """True if all epochs, whole, have as many blocks; best fit's number depends on the lengths and not on their order."""
        return not self.options.shuffle or self.options.policy == "best_fit"

    def at(self, number: int) -> "Epoch":
        """The epoch of another number, whole.

        Raises:
            ConfigError: if ``number`` is no whole number from 0.
        """
        return replace(self, number=number, cuts=())

    def after(self, cut: Cut) -> "Epoch":
        """The same epoch after one more cut."""
        return replace(self, cuts=(*self.cuts, cut)) if cut.done else self

    def resumed(self, size: int, batch_size: int) -> tuple["Epoch", int]:
        """The epoch without its last cut, and what that had done, if ``size`` ranks can go on with it; else itself, and 0."""
        last = self.cuts[-1] if self.cuts else None
        if last is None or (last.size, last.batch_size) != (size, batch_size):
            return self, 0
        return replace(self, cuts=self.cuts[:-1]), last.done

    def state_dict(self) -> dict[str, Any]:
        """Plain values from which :meth:`loaded` gives the same blocks."""
        return {
            "format": _FORMAT,
            "epoch": self.number,
            "described": self.described,
            "hash": self.packed.hash,
            "cuts": [list(cut) for cut in self.cuts],
        }

    def loaded(self, state: Mapping[str, Any]) -> "Epoch":
        """The epoch and cuts in ``state``, of the same lengths and options.

        Raises:
            StateError: if the state belongs to other lengths or options, or is damaged.
        """
        if not isinstance(state, Mapping) or set(state) != _KEYS or state["format"] != _FORMAT:
            raise StateError(f"this is no state of a sampler of format {_FORMAT}; it must hold {', '.join(sorted(_KEYS))}")
        found, wanted = state["described"], self.described
        if not isinstance(found, Mapping):
            raise StateError(f"'described' must be a dict, got {found!r}; the state is damaged")
        differing = [f"{key}: {found.get(key)!r} there, {wanted[key]!r} here" for key in wanted if found.get(key) != wanted[key]]
        if differing:
            raise StateError(
                "the state belongs to a sampler of other lengths or options; build this one as that was, or start the epoch anew "
                "with set_epoch():\n  " + "\n  ".join(differing)
            )
        try:
            epoch = replace(self, number=state["epoch"], cuts=tuple(Cut(*cut) for cut in state["cuts"]))
            _ = epoch.left  # so that cuts beyond the blocks are found here
        except (ConfigError, TypeError) as error:
            raise StateError(f"the state is damaged: {error}") from error
        if epoch.packed.hash != state["hash"]:
            raise StateError(
                f"epoch {epoch.number} was packed into other blocks ({state['hash']} there, {epoch.packed.hash} here), from the "
                "same lengths and options; load it with the version of hvd_adaptive that saved it, or start the epoch anew"
            )
        return epoch

    @cached_property
    def described(self) -> dict[str, Any]:
        """What makes two epochs of the same number equal, as plain values."""
        digest = hashlib.blake2b(self.lengths.astype("<i4").data, digest_size=8).hexdigest()
        return {**self.options._asdict(), "sequences": self.lengths.size, "hash of lengths": digest}
