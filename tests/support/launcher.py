"""What tests start launchers with."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",  # ranks may outnumber cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
ONE_ORDER = {
    "HOROVOD_FUSION_THRESHOLD": "0",  # what is fused depends on timing, and the order of additions on what is fused
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allreduce_algorithm": "3",  # recursive doubling, whatever the size of the message
}
"""Settings under which Horovod adds up ranks in one order, so that two runs can be compared bit for bit."""


def run_launcher(
    command: list[str], folder: Path, seconds: float = 240.0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a launcher to its end in ``folder``; the result's stdout holds both streams. None takes a minute on 2 idle cores."""
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | ENVIRONMENT | dict(environment or {}),
        cwd=folder,
        timeout=seconds,
        check=False,
    )
