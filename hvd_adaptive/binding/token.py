"""The token: a one-element tensor that Horovod's own allreduce carries in place of a gradient that travels another way.

It comes back scaled as Horovod would have scaled the gradient, so ``op=`` and ``gradient_predivide_factor`` keep their meaning.
The first token of a parameter also carries a code of its rank and a mark of the step: their mean tells whether Horovod averaged
over the ranks that the compression object speaks to, and whether all are at the same step, before anything waits for a rank that
never comes.
"""

from collections.abc import Sequence

from hvd_adaptive import prng
from hvd_adaptive.errors import ConfigError

_TOLERANCE = 1e-3
"""Relative. float32 scaling by predivide factors is good to 1e-6; op=Sum over two ranks is off by 1."""


def _code(rank: int, mark: int) -> float:
    return prng.derive(prng.derive(prng.root(0), rank), mark).high / 2**32


def contents(rank: int, mark: int | None) -> list[float]:
    """What to send: one, and with a ``mark`` of the step also the code of the global ``rank`` and the mark."""
    return [1.0] if mark is None else [1.0, _code(rank, mark)]


def weight(values: Sequence[float], ranks: list[int], mark: int | None) -> float:
    """What the mean over ``ranks`` must be multiplied with: 1 under ``op=Average``, the number of ranks under ``op=Sum``.

    Args:
        values: what came back of :func:`contents`, reduced in double precision if there was a ``mark``.
        ranks: the members' global ranks.
        mark: of this rank, if it was sent.

    Raises:
        ConfigError: if the token came back as neither, or from other ranks, or ranks with other marks.
    """
    scaled = min((1.0, float(len(ranks))), key=lambda legal: abs(legal - values[0]))
    same_ranks = mark is None or abs(values[1] / values[0] - sum(_code(rank, mark) for rank in ranks) / len(ranks)) < 1e-9
    if abs(scaled - values[0]) > _TOLERANCE * scaled or not same_ranks:
        raise other_ranks(ranks)
    return scaled


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
