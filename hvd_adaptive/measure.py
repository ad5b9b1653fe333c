"""What a controller wants to know of a unit's gradient on this rank: which share survives at each factor, and how large it is."""

from dataclasses import dataclass, replace

from hvd_adaptive.compress.ranking import Ranked, energies, squares
from hvd_adaptive.control import Wanted
from hvd_adaptive.feedback import Gradients
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.plan import UnitPlan
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class Measured:
    """Energies of one unit on this rank; several units add up.

    Attributes:
        kept: of what each wanted factor keeps.
        whole: of all that it is kept of.
        gradient: of the gradient before feedback.
    """

    kept: tuple[float, ...]
    whole: float
    gradient: float


def measure(
    ops: Ops, plan: UnitPlan, x: Array, draw: Draw, gradients: Gradients, wanted: Wanted
) -> tuple[Measured, Ranked | None]:
    """Measure a unit whose vector to compress is ``x`` f[n].

    Returns:
        the energies, and the ranked selection of ``x`` where it may serve to compress it, too.
    """
    raw = wanted.gain == "raw"
    of_gradients = [gradient for _, gradient in gradients]
    found = squares(ops, of_gradients if raw or not wanted.factors else [*of_gradients, x])
    own = sum(found[: len(of_gradients)])
    if not wanted.factors:
        return Measured((), own, own), None
    if raw:
        x = ops.concat([ops.cast(gradient, plan.unit.dtype) for _, gradient in sorted(gradients, key=lambda one: one[0].start)])
    least = wanted.factors[0]
    compressor = replace(plan.compressor, factor=least)  # type: ignore[type-var]
    positions = compressor.ranked(ops, x, draw)
    measured = Measured(energies(ops, x, positions, wanted.factors), own if raw else found[-1], own)
    return measured, None if raw or not plan.ranks_whole else Ranked(positions, least, least)
