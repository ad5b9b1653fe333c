"""The GraVAC example as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import run_launcher

SCRIPT = Path(__file__).parents[2] / "examples" / "torch_gravac.py"
SHORT = ("--epochs", "1", "--limit", "4096", "--batch-size", "32", "--window", "10")
pytestmark = pytest.mark.timeout(300)  # each test launches ranks anew, which takes seconds, and far more on a busy machine


def run_example(folder: Path, size: int, *options: str) -> subprocess.CompletedProcess[str]:
    launcher = [str(Path(sys.executable).with_name("horovodrun")), "-np", str(size), sys.executable, str(SCRIPT)]
    files = ["--json", str(folder / "results.json"), "--history", str(folder / "log.jsonl")]
    return run_launcher([*launcher, *files, *options], folder)


def test_it_steers_and_its_log_says_how(tmp_path: Path) -> None:
    run = run_example(tmp_path, 3, *SHORT)
    assert run.returncode == 0, run.stdout
    found = json.loads((tmp_path / "results.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(4096 // 96))
    assert found["ranks"] == 3
    assert found["test_accuracy"] > 0.3  # 42 steps; guessing gives 0.1
    assert {line["branch"] for line in lines} <= {"minimum", "candidate", "dense"}
    assert lines[0]["factor"] == pytest.approx(10, rel=1e-3)
    assert max(line["factor"] for line in lines) > 30
    assert found["factor"] == pytest.approx(
        sum(line["elements"] for line in lines) / sum(line["kept"] for line in lines), abs=0.1
    )
    assert set(found["gains"]["model"]) == {"10.0", "20.0", "40.0", "160.0", "1000.0"}
    assert "steps at factor 10: " in run.stdout


def test_with_dense_trials_it_starts_with_them(tmp_path: Path) -> None:
    run = run_example(tmp_path, 2, *SHORT, "--probe-dense", "--scope", "layer-wise", "--compressor", "redsync", "--per-unit")
    assert run.returncode == 0, run.stdout
    branches = [
        json.loads(line)["branch"] for line in (tmp_path / "log.jsonl").read_text().splitlines() if '"branch": ""' not in line
    ]
    units = len({json.loads(line)["unit"] for line in (tmp_path / "log.jsonl").read_text().splitlines() if '"trial"' in line})
    assert branches[: 6 * units] == ["trial"] * 6 * units


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--epsilon", "2"), "epsilon must be a number above 0, up to 1, got 2.0"),
        (("--min-factor", "100", "--max-factor", "10"), "max_factor must be a finite number >= 100"),
        (("--limit", "3"), "are less than one batch"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = run_launcher(["mpirun", "--oversubscribe", "-np", "2", sys.executable, str(SCRIPT), *options], tmp_path)
    assert run.returncode != 0
    assert said in run.stdout
    assert "Traceback" not in run.stdout
