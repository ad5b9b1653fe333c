"""What of a machine and its installation training needs, looked at; ``hvd-adaptive doctor`` shows it.

Nothing here loads a framework, but for the ranks of the trial, which are processes of their own.
"""

from hvd_adaptive.doctor import installation, loops, machine, trial
from hvd_adaptive.doctor.finding import Finding, Status

__all__ = ["Finding", "Status", "examine"]


def examine(ranks: int | None = None, *, gloo: bool = False) -> list[Finding]:
    """Look at everything, the trial last.

    Args:
        ranks: to start for the trial; without, it takes one process and no launcher.
        gloo: start them by ``horovodrun --gloo`` instead of ``mpirun``.
    """
    findings = [
        *machine.examine(ranks or 1, needs_mpirun=bool(ranks) and not gloo),
        *installation.examine(),
        loops.examine(),
    ]
    if "torch" in installation.built_for():
        findings += trial.examine(ranks, gloo=gloo)
    else:
        findings.append(Finding("compressed steps", "warning", "not tried", "the trial needs Horovod built with torch"))
    return findings
