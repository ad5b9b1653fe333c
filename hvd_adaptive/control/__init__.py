"""Controllers: who decides the compression factor, and how ranks agree."""

from hvd_adaptive.control.accordion import Accordion
from hvd_adaptive.control.agreement import REFUSED, agree, largest
from hvd_adaptive.control.base import DENSE, Controller, Decision, Observation, Wanted
from hvd_adaptive.control.budget import Budget
from hvd_adaptive.control.fixed import Fixed
from hvd_adaptive.control.gravac import GraVAC
from hvd_adaptive.control.never_slower import NeverSlower
from hvd_adaptive.control.schedule import Schedule
from hvd_adaptive.control.warm_up import WarmUp

__all__ = [
    "DENSE",
    "REFUSED",
    "Accordion",
    "Budget",
    "Controller",
    "Decision",
    "Fixed",
    "GraVAC",
    "NeverSlower",
    "Observation",
    "Schedule",
    "Wanted",
    "WarmUp",
    "agree",
    "largest",
]
