"""What stock Horovod calls in every step: ``compress`` for each gradient, then ``decompress`` for each."""

from dataclasses import dataclass
from typing import Any

import torch
from horovod.torch.compression import Compressor as HorovodCompressor

from hvd_adaptive.binding import token
from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.binding.on_instances import on_instances
from hvd_adaptive.binding.step import Place
from hvd_adaptive.binding.steps import Steps
from hvd_adaptive.binding.watch import Watch
from hvd_adaptive.errors import ConfigError, StateError
from hvd_adaptive.flight import Flight
from hvd_adaptive.monitor import Meter
from hvd_adaptive.torch.parameters import Finder, shaped_like


@dataclass(frozen=True)
class _Context:
    """What ``decompress`` needs to know of what ``compress`` returned.

    Attributes:
        riding: the unit, if its payload went with Horovod's allreduce.
        untouched: the gradient itself did.
    """

    place: Place
    gradient: torch.Tensor
    riding: Flight | None = None
    untouched: bool = False


class Hooks(HorovodCompressor):  # type: ignore[misc]
    """The methods Horovod calls; whoever inherits them sets what they work with."""

    _collective: RankSet
    _finder: Finder
    _meter: Meter
    _places: dict[str, Place]
    _steps: Steps
    _tokens: token.Tokens
    _watch: Watch

    @on_instances
    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Called by Horovod with a parameter's gradient. Returns the tensor it shall allreduce, and a context."""
        name = self._finder.find(tensor)
        if name is None:
            return tensor, None
        self._watch.note()
        self._steps.arrive(name)
        place = self._places[name]
        if self._steps.leaves_untouched(place):
            return tensor.contiguous(), _Context(place, tensor, untouched=True)
        return self._compress(place, tensor)

    @torch.no_grad()
    def _compress(self, place: Place, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        # A rank outside the process set, which its optimizer should not have called, takes part in Horovod's collectives only.
        riding = self._steps.take(place, tensor) if self._collective.member or self._steps.rides(place) else None
        if riding is not None:
            assert riding.round is not None  # noqa: S101 - what rides is in its first and only round
            sent = riding.round.array
            # Horovod reduces in place, but what is kept back is told from what was sent.
            return sent.clone() if riding.plan.feedback.remembers else sent, _Context(place, tensor, riding)
        values = self._tokens.make(place.slot.parameter.name, lambda: self._steps.mark)
        dtype = torch.float32 if len(values) == 1 else torch.float64
        sign = torch.cat([torch.full((1,), value, dtype=dtype, device=tensor.device) for value in values])  # waits for no device
        self._meter.add_bytes(sign.nbytes)
        return sign, _Context(place, tensor)

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Called by Horovod with what its allreduce made of :meth:`compress`'s tensor. Returns the gradient to use."""
        if ctx is None:  # a sparse gradient, which Horovod allreduced by itself
            self._finder.check_sparse()
            return tensor
        step = self._steps.current
        if not step.returned:
            if not self._collective.member:
                raise token.other_ranks(self._collective.ranks)
            self._check_complete(step.arrived)
            self._steps.all_sent()
        gradient = self._leave(tensor, ctx) if ctx.untouched else self._decompress(tensor, ctx)
        step.returned += 1
        if step.returned == len(step.arrived):
            self._steps.finish()
            self._watch.rest()
        return gradient

    def _leave(self, tensor: torch.Tensor, ctx: _Context) -> torch.Tensor:
        mean = self._steps.give_untouched(ctx.place, tensor)
        return mean if ctx.gradient.is_contiguous() else shaped_like(mean, ctx.gradient)

    @torch.no_grad()
    def _decompress(self, tensor: torch.Tensor, ctx: _Context) -> torch.Tensor:
        if ctx.riding is not None:
            mean = self._steps.give_ridden(ctx.place, ctx.riding, tensor)
        else:
            first, name = not self._steps.current.means, ctx.place.slot.parameter.name
            self._tokens.read(name, tensor.tolist, lambda: self._steps.mark, first=first)
            mean = self._steps.give(ctx.place, self._tokens.weight)
        return shaped_like(mean, ctx.gradient)

    def _check_complete(self, arrived: set[str]) -> None:
        if len(arrived) == len(self._places):
            return
        self._finder.check_sparse()
        if not arrived:
            raise StateError("the object was reset between backward() and step(), and has forgotten the gradients that came")
        missing = [name for name in self._finder.dense_names() if name not in arrived]
        if missing:
            raise ConfigError(
                f"the optimizer handed over no gradient of {', '.join(map(repr, missing[:5]))} ({len(missing)} in all); build "
                "the compression object from the parameters that the optimizer holds, each optimizer with its own object"
            )
