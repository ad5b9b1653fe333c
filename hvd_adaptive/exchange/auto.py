"""Which exchange ``"auto"`` takes: the method's own, unless another one is modelled to be so much faster that it is worth it.

``shared-support`` sends what another rank would pick, so that a rank's own largest elements wait for its turn; ``reduce`` of
levels is coarser. ``two-sided`` compresses the mean again, which nobody gets who did not ask for it.
"""

from hvd_adaptive.compress.base import Compressor, ExchangeName
from hvd_adaptive.exchange.cost import Cost, Network, costs

WORTH: dict[ExchangeName, float] = {"shared-support": 8.0, "reduce": 4.0}
"""How many times as fast an exchange must be, see docs/decisions/020-auto.md."""


def pick(compressor: Compressor, n: int, ranks: int, network: Network | None) -> ExchangeName | None:
    """The exchange for a unit of ``n`` elements; None where that depends on the network, and none is given."""
    own, found = compressor.exchanges[0], costs(compressor, n, ranks)
    if ranks == 1 or own not in found:
        return own
    for other, worth in WORTH.items():
        if other in found and other in compressor.exchanges:
            least, most = _times(found[own], found[other], network)
            if least > worth:
                return other
            if most > worth:
                return None
    return own


def _times(own: Cost, other: Cost, network: Network | None) -> tuple[float, float]:
    """How many times as long the first takes as the second, at least and at most: whatever the network, if none is given."""
    if network is not None:
        times = own.seconds(network) / other.seconds(network)
        return times, times
    # A quotient of sums lies between the least and the largest quotient of their terms.
    terms = own.messages / other.messages, own.carried / other.carried, own.work / other.work
    return min(terms), max(terms)
