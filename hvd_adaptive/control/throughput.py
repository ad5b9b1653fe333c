"""Compression throughput: how fast steps are at a factor, times how much of the gradient survives.

Source    Tyagi & Swany 2023, arXiv:2305.12201, section III and algorithm 1, L30 and L36 to L39.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

ReadingName: TypeAlias = Literal["prose", "pseudocode"]
"""Which of the paper's two to follow where they part."""
READINGS: tuple[ReadingName, ...] = get_args(ReadingName)

_WEIGHT = 0.25
"""Of the newest throughput, each of which is a median of several steps."""


def smoothed(speeds: Mapping[float, float], gains: Mapping[float, float], seconds: Mapping[float, float]) -> dict[float, float]:
    """Throughputs by factor after steps took ``seconds``; without a gain there is none."""
    found = dict(speeds)
    for factor, taken in seconds.items():
        if factor in gains and taken > 0:
            speed = gains[factor] / taken
            found[factor] = speed if factor not in found else found[factor] + _WEIGHT * (speed - found[factor])
    return found


def ideal(speeds: Mapping[float, float], omega: float, reading: ReadingName) -> float | None:
    """The factor to stay at if the two highest throughputs differ by ``omega`` at most, relative; else None."""
    if len(speeds) < 2:
        return None
    second, first = sorted(speeds, key=lambda factor: (speeds[factor], -factor))[-2:]
    if speeds[first] - speeds[second] > omega * speeds[second]:
        return None
    return second if reading == "pseudocode" else min(first, second)
