"""Reduce: codes that sum travel in an allreduce; traffic per rank is O(k), whatever the number of ranks."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from hvd_adaptive.compress.base import Compressor, ExchangeName, at_least_single
from hvd_adaptive.compress.identity import Identity
from hvd_adaptive.compress.levels import Levels
from hvd_adaptive.compress.powersgd import PowerSGD, product
from hvd_adaptive.exchange.base import Exchange, Outcome, Round, Rounds, Situation, outcome, unhealthy
from hvd_adaptive.exchange.lanes import Lanes
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.verdicts import Verdict, opposite, spoilt


@dataclass(frozen=True)
class Reduce(Exchange):
    """Sum what ranks send, then decode the sum: floats at once, levels under a shared scale, factors one after the other."""

    name: ClassVar[ExchangeName] = "reduce"

    def check(self, compressor: Compressor, size: int) -> None:
        if isinstance(compressor, Levels):
            Lanes(compressor.top, size)

    def remembers(self, compressor: Compressor, shape: tuple[int, ...], size: int) -> dict[str, int]:
        form = compressor.form(shape) if isinstance(compressor, PowerSGD) else None
        return {"q": form.columns * form.rank} if form is not None and form.rank else {}

    def rounds(self, compressor: Compressor, x: Array, situation: Situation) -> Rounds:
        if isinstance(compressor, Levels):
            return _levels(compressor, x, situation)
        if isinstance(compressor, PowerSGD):
            dense = not compressor.form(situation.shape).rank
            return _floats(Identity(), x, situation) if dense else _factors(compressor, x, situation)
        return _floats(compressor, x, situation)


def in_one_round(compressor: Compressor) -> bool:
    """True if one allreduce of one float vector does it all, so that it may ride on one of the caller's."""
    return not isinstance(compressor, (Levels, PowerSGD))


def _floats(compressor: Compressor, x: Array, situation: Situation) -> Rounds:
    """One round: the mean of the payload's floats."""
    ops, draw = situation.ops, situation.draw
    payload = compressor.encode(ops, x, draw)
    (values,) = payload.fields
    averaged = yield Round("mean", _healthy(values.array, situation))
    finite, mean = _is_healthy(averaged, situation), None
    if finite is not False:
        mean = compressor.decode(ops, replace(payload, fields=(values._replace(array=averaged),)), draw)
    return outcome(ops, compressor, payload, draw, mean, finite)


def _levels(compressor: Levels, x: Array, situation: Situation) -> Rounds:
    """Two rounds: ranks agree on scales, then add up codes in lanes."""
    ops, size, n = situation.ops, situation.size, situation.ops.size(x)
    lanes, dtype = Lanes(compressor.top, size), ops.dtype(x)
    single = at_least_single(ops, x)
    scale = compressor.scale(ops, single)
    scale = yield Round(compressor.shared_by, spoilt(ops, scale, situation.healthy, math.inf))
    finite = ops.all_finite(scale)
    if finite is False:
        return unhealthy(n)
    scale = spoilt(ops, scale, finite, 0.0)
    codes = compressor.codes(ops, single, scale, situation.draw)
    sums = yield Round("sum", lanes.pack(ops, codes))
    mean = spoilt(ops, compressor.values(ops, lanes.unpack(ops, sums, n), scale, dtype, size), finite, math.nan)

    def keep_back(x: Array) -> Array:
        return compressor.add_values(ops, codes, scale, ops.dtype(x), x, -1.0)

    return Outcome(mean, n, keep_back, finite=finite)


def _factors(compressor: PowerSGD, x: Array, situation: Situation) -> Rounds:
    """Two rounds: the mean of p = M q, made orthonormal, then the mean of q = M^T p, from which the next step starts."""
    ops, n, dtype = situation.ops, situation.ops.size(x), situation.ops.dtype(x)
    form = compressor.form(situation.shape)
    matrix = ops.matrix(at_least_single(ops, x), form.rows, form.columns)
    q = _start(compressor, x, situation)
    p = yield Round("mean", _healthy(ops.flatten(compressor.project(ops, matrix, q)), situation))
    kept = form.rank * (form.rows + form.columns)
    finite = ops.all_finite(p)
    if finite is False:
        return unhealthy(kept)
    p = ops.orthonormal(ops.matrix(spoilt(ops, p, finite, 0.0), form.rows, form.rank))
    own = ops.matmul(ops.transpose(matrix), p)
    q = yield Round("mean", ops.flatten(own))
    finite = finite & ops.all_finite(q)
    if finite is False:
        return unhealthy(kept)
    mean = spoilt(ops, product(ops, p, ops.matrix(q, form.columns, form.rank), n, dtype), finite, math.nan)

    def keep_back(x: Array) -> Array:
        return ops.add_slice(x, 0, product(ops, p, own, n, ops.dtype(x)), -1.0)

    return Outcome(mean, kept, keep_back, memory={"q": q}, finite=finite)


def _start(compressor: PowerSGD, x: Array, situation: Situation) -> Array:
    """``f[columns, rank]``: the last step's q; anew in the first step, and in one after the gradient vanished."""
    ops, form, last = situation.ops, compressor.form(situation.shape), situation.memory.get("q")
    usable = False if last is None else ops.any(last != 0)
    if usable is True:
        return ops.matrix(last, form.columns, form.rank)
    first = compressor.first(ops, form, situation.draw, x)
    return first if usable is False else ops.where(usable, ops.matrix(last, form.columns, form.rank), first)


def _healthy(values: Array, situation: Situation) -> Array:
    """``values``, or NaN throughout, which survives a mean, if this rank's gradient was not finite."""
    return spoilt(situation.ops, values, situation.healthy, math.nan)


def _is_healthy(averaged: Array, situation: Situation) -> Verdict:
    """False if any rank sent NaN throughout because it had to."""
    return opposite(situation.checks and situation.ops.starts_with_nan(averaged))
