"""The token: a one-element tensor that Horovod's own allreduce carries in place of a gradient that travels another way.

It comes back scaled as Horovod would have scaled the gradient, so ``op=`` and ``gradient_predivide_factor`` keep their meaning.
The first token of a parameter also carries a code of its rank and a mark of the step: their mean tells whether Horovod averaged
over the ranks that the compression object speaks to, and whether all are at the same step, before anything waits for a rank that
never comes.
"""

from collections.abc import Callable, Sequence

from hvd_adaptive import prng
from hvd_adaptive.errors import ConfigError

_TOLERANCE = 1e-3
"""Relative. float32 scaling by predivide factors is good to 1e-6; op=Sum over two ranks is off by 1."""


def _code(rank: int, mark: int) -> float:
    return prng.derive(prng.derive(prng.root(0), rank), mark).high / 2**32


class Tokens:
    """The tokens of one compression object.

    Args:
        ranks: global ranks of the process set.
        rank: global rank of this one.
    """

    def __init__(self, ranks: list[int], rank: int) -> None:
        self._ranks = ranks
        self._rank = rank
        self.restart()

    def restart(self) -> None:
        """Prove all anew."""
        self._proven: set[str] = set()
        self.weight = 1.0
        """What the mean over the ranks must be multiplied with: 1 under ``op=Average``, the number of ranks under ``op=Sum``."""

    def make(self, name: str, mark: Callable[[], int]) -> list[float]:
        """What the token of parameter ``name`` holds: one, and the first time the code of rank and ``mark``."""
        return [1.0] if name in self._proven else [1.0, _code(self._rank, mark())]

    def read(
        self, name: str, came: Callable[[], Sequence[float]], mark: Callable[[], int], *, first: bool, precision: float = 1e-9
    ) -> None:
        """Learn from what came back how Horovod scales, and from a parameter's first token whether all ranks agree.

        Args:
            name: the parameter.
            came: what came back of :meth:`make`, which is not asked for needlessly: it may be on a device.
            mark: of this rank in this step.
            first: it is the step's first token.
            precision: to which the mean of codes is good.

        Raises:
            ConfigError: if the token came back neither averaged nor summed, or from other ranks, or ranks with other marks, or
                scaled otherwise than others of this step.
        """
        if not first and name in self._proven:
            return
        values = came()
        scaled = min((1.0, float(len(self._ranks))), key=lambda legal: abs(legal - values[0]))
        same_ranks = len(values) == 1 or abs(values[1] / values[0] - self._mean_code(mark())) < precision
        if abs(scaled - values[0]) > _TOLERANCE * scaled or not same_ranks:
            raise other_ranks(self._ranks)
        if first:
            self.weight = scaled
        elif scaled != self.weight:
            raise ConfigError(
                f"the gradient of {name!r} is reduced by another op= than others of this step; give each optimizer a compression "
                "object of its own"
            )
        self._proven.add(name)

    def _mean_code(self, mark: int) -> float:
        return sum(_code(rank, mark) for rank in self._ranks) / len(self._ranks)


def other_ranks(ranks: list[int]) -> ConfigError:
    """The error for an optimizer that reduces over other ranks than the compression object, or by another ``op=``."""
    return ConfigError(
        f"the optimizer does not average or sum over ranks {ranks}, as this compression object does; give both the same "
        "process_set=, and the optimizer op=hvd.Average or op=hvd.Sum. hvd.join() cannot stand in for a rank either, for it "
        "sends no payload: give every rank the same number of steps, and load or reset the same state on all of them"
    )


def other_states() -> ConfigError:
    """The error for ranks that are not at the same step, with the same controller's state."""
    return ConfigError(
        "the ranks are not at the same step, with the same state of the controller: load or reset the same state on all of them"
    )
