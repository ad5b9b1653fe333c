"""What a checkpoint of a compression object holds, and whether it fits the object it is loaded into."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hvd_adaptive.collective import Collective
from hvd_adaptive.control.agreement import differences
from hvd_adaptive.errors import StateError

Remembered: TypeAlias = Mapping[str, Mapping[str, tuple[str, int]]]
"""Dtype and length of each vector that must be saved, by unit and name."""

Form: TypeAlias = Callable[[Any], tuple[str, tuple[int, ...]] | None]
"""Tells dtype and shape of a saved vector; None if it is no array of finite numbers."""

_FORMAT = 3
_KEYS = {"format", "description", "rank", "ranks", "steps", "memory", "control"}


def check_between_steps(under_way: bool) -> None:
    """
    Raises:
        StateError: if a step is under way, when part of the gradients is in the memory.
    """
    if under_way:
        raise StateError(
            "a step is under way; save and load between steps (under torch not between backward() and step()), and where an "
            "error cut a step short, call reset() on all ranks"
        )


def pack(description: dict[str, Any], collective: Collective, steps: int, memory: dict[str, Any], control: Any) -> dict[str, Any]:
    """The state as plain values and tensors."""
    return {
        "format": _FORMAT,
        "description": dict(description),
        "rank": collective.rank,
        "ranks": collective.size,
        "steps": steps,
        "memory": memory,
        "control": control,
    }


def check(
    saved: dict[str, Any],
    description: dict[str, Any],
    collective: Collective,
    remembered: Remembered,
    control: dict[str, Any] | None,
    form: Form,
    *,
    strict: bool,
) -> bool:
    """True if the memory is this rank's own.

    Args:
        saved: the state.
        description: of the object it is loaded into.
        collective: the ranks.
        remembered: what the memory must hold.
        control: the object's own before the first step, with all units, which the saved one must fit.
        form: of a saved vector.
        strict: refuse what is not this rank's own.

    Raises:
        StateError: if ``saved`` is no such state, or one of another configuration, model, rank or number of ranks.
    """
    if not isinstance(saved, dict) or set(saved) != _KEYS or saved["format"] != _FORMAT:
        raise StateError(f"this is no state of a compression object of format {_FORMAT}; it must hold {', '.join(sorted(_KEYS))}")
    if not isinstance(saved["description"], dict):
        raise StateError(f"the description must be a dict, got {saved['description']!r}; the state is damaged")
    found = differences({"the saved state": saved["description"], "this object": description})
    if found:
        raise StateError("the state belongs to another compression object:\n  " + "\n  ".join(found))
    own = (saved["rank"], saved["ranks"]) == (collective.rank, collective.size)
    if strict and not own:
        raise StateError(
            f"the state was saved by rank {saved['rank']} of {saved['ranks']}, this is rank {collective.rank} of "
            f"{collective.size}; residuals belong to one rank, so save and load one file per rank, or go on without: "
            "load_state_dict(state, strict=False) takes the steps and the controller's state, and residuals start from zero"
        )
    if isinstance(saved["steps"], bool) or not isinstance(saved["steps"], int) or saved["steps"] < 0:
        raise StateError(f"the number of steps must be an integer >= 0, got {saved['steps']!r}")
    _check_control(saved["control"], control)
    if own:
        _check_memory(saved["memory"], remembered, form, complete=saved["steps"] > 0)
    return own


def _check_control(saved: Any, own: dict[str, Any] | None) -> None:
    if own is None:
        fits = saved is None
    else:
        fits = (
            isinstance(saved, dict)
            and set(saved) == set(own)
            and isinstance(saved["states"], list)
            and len(saved["states"]) == len(own["states"])
            and all(_fits(state, first) for state, first in zip(saved["states"], own["states"], strict=True))
            and isinstance(saved["empty"], list)
            and all(unit in own["empty"] for unit in saved["empty"])
        )
    if not fits:
        raise StateError(f"the controller's state is {saved!r}, which does not fit; the state is damaged")


def _fits(saved: Any, first: Any) -> bool:
    """True if ``saved`` holds every entry of the ``first`` state, as far as that is made of dicts."""
    if not isinstance(first, dict):
        return True
    return isinstance(saved, dict) and all(key in saved and _fits(saved[key], value) for key, value in first.items())


def _check_memory(memory: dict[str, dict[str, Any]], remembered: Remembered, form: Form, *, complete: bool) -> None:
    if not isinstance(memory, dict) or not all(isinstance(arrays, dict) for arrays in memory.values()):
        raise StateError("the memory must hold a dict of vectors for each unit; the state is damaged")
    given = {(unit, name): array for unit, arrays in memory.items() for name, array in arrays.items()}
    legal = {(unit, name): wanted for unit, forms in remembered.items() for name, wanted in forms.items()}
    for (unit, name), array in given.items():
        wanted, found = legal.get((unit, name)), form(array)
        if found is None:
            raise StateError(f"the {name} of unit {unit!r} is no vector of finite numbers; the state is damaged")
        if wanted is None or found != (wanted[0], (wanted[1],)):
            expected = "no such unit keeps one" if wanted is None else f"{wanted[0]}[{wanted[1]}] is expected"
            raise StateError(f"the {name} of unit {unit!r} is {found[0]}{list(found[1])}, but {expected}")
    lost = sorted(set(legal) - set(given)) if complete else []
    if lost:
        shown = ", ".join(f"the {name} of {unit!r}" for unit, name in lost[:5])
        raise StateError(f"the state does not hold {shown} ({len(lost)} missing in all); it is damaged")
