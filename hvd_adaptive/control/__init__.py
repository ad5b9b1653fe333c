"""Controllers: who decides the compression factor, and how ranks agree."""

from hvd_adaptive.control.agreement import REFUSED, agree, largest
from hvd_adaptive.control.base import Controller, Observation
from hvd_adaptive.control.fixed import Fixed

__all__ = ["REFUSED", "Controller", "Fixed", "Observation", "agree", "largest"]
