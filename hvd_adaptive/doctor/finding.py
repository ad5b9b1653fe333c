"""One thing that was looked at."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """What was found, and what to do about it.

    Attributes:
        name: of what was looked at.
        status: a ``warning`` is of something that some runs need, a ``failure`` of something that all do.
        found: as it is.
        advice: what to do next; empty if all is well.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
