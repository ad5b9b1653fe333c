"""A few compressed steps on real ranks, in processes of their own: what crashes or hangs there becomes a finding."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hvd_adaptive.doctor.finding import Finding

STEPS = 4
"""Of each rank."""
_NAME = "compressed steps"
_SECONDS = 90.0
"""One rank takes 5 s, and compiles for 30 more if it is the first; a launcher that finds no way between ranks never ends."""
_SECONDS_PER_RANK = 15.0
"""Where ranks outnumber cores they import torch one after the other."""

_ALONE = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    **{f"HOROVOD_{name}RANK": "0" for name in ("", "LOCAL_", "CROSS_")},
    **{f"HOROVOD_{name}SIZE": "1" for name in ("", "LOCAL_", "CROSS_")},
}
"""For one rank where MPI, which starts programs of its own even then, cannot be started."""


def examine(ranks: int | None, *, gloo: bool, seconds: float | None = None) -> list[Finding]:
    """Run the trial.

    Args:
        ranks: to launch; None for one process without a launcher.
        gloo: launch by ``horovodrun --gloo`` instead of ``mpirun``.
        seconds: after which it has failed; by default it depends on the ranks.
    """
    seconds = _SECONDS + _SECONDS_PER_RANK * (ranks or 1) if seconds is None else seconds
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [*_launcher(ranks, gloo=gloo), sys.executable, "-m", "hvd_adaptive.doctor.rank", str(file)]
        code, output = _run(command, seconds, {} if ranks or shutil.which("mpirun") else _ALONE)
        if code is None:
            advice = "see what ranks wait for: ssh, network interfaces, or a size of /dev/shm that is too small"
            return [Finding(_NAME, "failure", f"not done after {seconds:.0f} s: {_last(output)}", advice)]
        if code or not file.exists():
            return [
                Finding(_NAME, "failure", f"ended with code {code}: {_last(output)}", f"run it to see all: {' '.join(command)}")
            ]
        report = json.loads(file.read_text(encoding="utf-8"))
    return [transports(report), outcome(report, ranks or 1)]


def transports(report: dict[str, Any]) -> Finding:
    """What Horovod can send by."""
    built = [name for name, there in report["built"].items() if there]
    found = f"{', '.join(built) or 'nothing'} built; {report['used']} used"
    if report["gpus"] and "NCCL" not in built:
        advice = "GPUs are there: build Horovod with HOROVOD_GPU_OPERATIONS=NCCL, see docker/Dockerfile.gpu"
        return Finding("transports", "warning", found, advice)
    return Finding("transports", "ok", found)


def outcome(report: dict[str, Any], ranks: int) -> Finding:
    """Whether all ranks took the steps, compressed, and hold the same bits."""
    if report["ranks"] != ranks:
        advice = (
            "the launcher is of another MPI than Horovod was built with: mpirun of the same installation must come first on PATH"
        )
        return Finding(_NAME, "failure", f"{report['ranks']} ranks found each other, of {ranks}", advice)
    if len(set(report["digests"])) != 1 or not report["finite"]:
        found = "parameters differ between ranks" if report["finite"] else "parameters are not finite"
        return Finding(
            _NAME, "failure", found, "this must not happen: please report it with the output of hvd-adaptive doctor --json"
        )
    if report["steps"] != STEPS or report["factor"] <= 1:
        found = f"{report['steps']} of {STEPS} steps compressed, factor {report['factor']:.1f}"
        return Finding(
            _NAME, "failure", found, "Horovod did not call the compression object: is it a patched or another Horovod?"
        )
    same = f", parameters bit-identical on {ranks} ranks" if ranks > 1 else ""
    found = f"{STEPS} with top-k, factor {report['factor']:.1f}, {1e3 * report['seconds']:.0f} ms each{same}"
    return Finding(_NAME, "ok", found)


def _launcher(ranks: int | None, *, gloo: bool) -> list[str]:
    if ranks is None:
        return []
    if gloo:
        beside = Path(sys.executable).with_name("horovodrun")
        return [str(beside) if beside.exists() else "horovodrun", "--gloo", "-np", str(ranks)]
    allowed = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *allowed, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def _run(command: list[str], seconds: float, environment: dict[str, str]) -> tuple[int | None, str]:
    """The exit code, None if time ran out, and what was said."""
    try:
        process = subprocess.Popen(  # noqa: S603 - built above
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        return 127, f"{command[0]} is not there"
    with process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
    return process.returncode, output


def _last(output: str) -> str:
    """The last lines that say something, which fit into a table."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -\t")]
    return " / ".join(lines[-3:])[-300:] or "it said nothing"
