"""The trial, on real ranks; and what is said where one goes wrong."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hvd_adaptive.doctor import trial
from hvd_adaptive.doctor.finding import Finding

REPORT = {
    "ranks": 2,
    "digests": ["same", "same"],
    "finite": True,
    "steps": 4,
    "factor": 10.0,
    "seconds": 0.01,
    "gpus": 0,
    "built": {"MPI": True, "Gloo": True, "NCCL": False},
    "used": "MPI",
}


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


@pytest.mark.parametrize(("ranks", "gloo", "used"), [(None, False, "MPI"), (3, False, "MPI"), (2, True, "Gloo")])
def test_ranks_take_compressed_steps(ranks: int | None, gloo: bool, used: str) -> None:
    found = by_name(trial.examine(ranks, gloo=gloo))
    assert {finding.status for finding in found.values()} == {"ok"}, found
    assert found["transports"].found == f"MPI, Gloo built; {used} used"
    assert "factor 10" in found["compressed steps"].found
    assert (f"bit-identical on {ranks} ranks" in found["compressed steps"].found) == (ranks is not None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"digests": ["one", "other"]}, "parameters differ between ranks"),
        ({"finite": False}, "not finite"),
        ({"ranks": 1, "digests": ["same"]}, "1 ranks found each other, of 2"),
        ({"steps": 0}, "0 of 4 steps compressed"),
        ({"factor": 1.0}, "factor 1.0"),
    ],
)
def test_what_ranks_report_is_judged(change: dict[str, Any], said: str) -> None:
    assert trial.outcome(REPORT, 2).status == "ok"
    found = trial.outcome(REPORT | change, 2)
    assert found.status == "failure"
    assert said in found.found
    assert found.advice


def test_gpus_without_nccl_are_told() -> None:
    found = trial.transports(REPORT | {"gpus": 8})
    assert found.status == "warning"
    assert "HOROVOD_GPU_OPERATIONS=NCCL" in found.advice
    assert trial.transports(REPORT | {"gpus": 8, "built": {"MPI": True, "NCCL": True}}).status == "ok"


def test_ranks_that_are_not_done_in_time_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = tmp_path / "mpirun"
    ranks.write_text(f"#!/bin/sh\necho waiting\nsleep 321.5 & echo $! >{tmp_path}/pid\nwait\n")
    ranks.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (found,) = trial.examine(2, gloo=False, seconds=2)
    assert found.status == "failure"
    assert "not done after 2 s: waiting" in found.found
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", (tmp_path / "pid").read_text().strip()], capture_output=True, text=True, check=False
    )
    assert state.stdout.strip()[:1] in {"", "Z"}


def test_what_a_launcher_said_before_it_failed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho there are no slots\nexit 3\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (found,) = trial.examine(2, gloo=False)
    assert found.status == "failure"
    assert "ended with code 3: there are no slots" in found.found
    assert "mpirun" in found.advice


def test_without_a_launcher_it_is_said_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = trial.examine(2, gloo=False)
    assert (found.status, found.found) == ("failure", "ended with code 127: mpirun is not there")
