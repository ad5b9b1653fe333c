"""What a checkpoint of a compression object holds, and whether it fits the object it is loaded into."""

from collections.abc import Mapping
from typing import Any

from hvd_adaptive.collective import Collective
from hvd_adaptive.control.agreement import differences
from hvd_adaptive.errors import StateError
from hvd_adaptive.granularity import Unit

_FORMAT = 1
_KEYS = {"format", "description", "rank", "ranks", "steps", "residuals", "control"}


def check_between_steps(under_way: bool) -> None:
    """
    Raises:
        StateError: if a step is under way, when part of the gradients sits in the residuals.
    """
    if under_way:
        raise StateError("a step is under way; save and load after optimizer.step(), not between backward() and step()")


def pack(
    description: dict[str, Any], collective: Collective, steps: int, residuals: dict[str, Any], control: Any
) -> dict[str, Any]:
    """The state as plain values and tensors."""
    return {
        "format": _FORMAT,
        "description": dict(description),
        "rank": collective.rank,
        "ranks": collective.size,
        "steps": steps,
        "residuals": residuals,
        "control": control,
    }


def check(saved: dict[str, Any], description: dict[str, Any], collective: Collective, units: Mapping[str, Unit]) -> None:
    """
    Raises:
        StateError: if ``saved`` is no such state, or one of another configuration, model, rank or number of ranks.
    """
    if not isinstance(saved, dict) or set(saved) != _KEYS or saved["format"] != _FORMAT:
        raise StateError(f"this is no state of a compression object of format {_FORMAT}; it must hold {', '.join(sorted(_KEYS))}")
    found = differences({"the saved state": saved["description"], "this object": description})
    if found:
        raise StateError("the state belongs to another compression object:\n  " + "\n  ".join(found))
    if (saved["rank"], saved["ranks"]) != (collective.rank, collective.size):
        raise StateError(
            f"the state was saved by rank {saved['rank']} of {saved['ranks']}, this is rank {collective.rank} of "
            f"{collective.size}; residuals belong to one rank, so save and load one file per rank, or go on without (residuals "
            "then start from zero)"
        )
    if not isinstance(saved["steps"], int) or saved["steps"] < 0:
        raise StateError(f"the number of steps must be an integer >= 0, got {saved['steps']!r}")
    for name, residual in saved["residuals"].items():
        unit = units.get(name)
        if unit is None or tuple(residual.shape) != (unit.size,) or str(residual.dtype) != f"torch.{unit.dtype}":
            legal = "no such unit keeps a residual" if unit is None else f"{unit.dtype}[{unit.size}] is expected"
            raise StateError(f"the residual of unit {name!r} is {residual.dtype}{list(residual.shape)}, but {legal}")
    lost = sorted(set(units) - set(saved["residuals"])) if saved["steps"] else []
    if lost:
        raise StateError(f"the state holds no residual of {', '.join(map(repr, lost[:5]))} ({len(lost)} in all); it is damaged")
