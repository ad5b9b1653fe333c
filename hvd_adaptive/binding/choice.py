"""What ``exchange="auto"`` comes to, where that depends on the network: measured if need be, agreed, and told."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.binding.network import measured
from hvd_adaptive.exchange import pick
from hvd_adaptive.ops import Ops
from hvd_adaptive.plan import Options, UnitPlan

logger = logging.getLogger("hvd_adaptive")


def weighs(plans: Sequence[UnitPlan], options: Options, ranks: int) -> bool:
    """True if another exchange than the method's own may be worth it among so many ranks."""
    own = options.compressor.exchanges[0]
    asked = options.exchange == "auto"
    return asked and any(pick(options.compressor, plan.unit.size, ranks, None) != own for plan in plans if not plan.dense)


def informed(options: Options, ops: Ops, collective: RankSet, label: str) -> Options:
    """``options`` with the network, measured if it is not given. Collective, and the same on every rank."""
    return replace(options, network=options.network or measured(ops, collective, label))


def tell(plans: Sequence[UnitPlan], options: Options, collective: RankSet) -> None:
    """On rank 0, what was chosen; loudly if it is not the method's own, for it sends something else."""
    if collective.rank:
        return
    own, network = options.compressor.exchanges[0], options.network
    chosen = Counter(plan.exchange.name for plan in plans if not plan.dense)
    others = [name for name in chosen if name != own]
    text = f"exchange='auto', {collective.size} ranks, {network}: " + ", ".join(
        f"{chosen[name]} units by {name}" for name in chosen
    )
    if others:
        text += (
            f". {others[0]} is modelled to be far faster here, at some loss of precision; exchange={own!r} or another "
            "network=Network(latency, bandwidth) changes that"
        )
    logger.log(logging.WARNING if others else logging.INFO, "%s", text)
