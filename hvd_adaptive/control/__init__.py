"""Controllers: who decides the compression factor, and how ranks agree."""

from hvd_adaptive.control.agreement import agree
from hvd_adaptive.control.base import Controller, Observation
from hvd_adaptive.control.fixed import Fixed

__all__ = ["Controller", "Fixed", "Observation", "agree"]
