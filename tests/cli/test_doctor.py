"""``hvd-adaptive doctor``, as users call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "hvd_adaptive.cli"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # The longest takes two ranks; a table as wide as this breaks no line.
    variables = os.environ | {"COLUMNS": "250"} | environment
    return subprocess.run([*COMMAND, *arguments], env=variables, capture_output=True, text=True, timeout=100, check=False)


def test_json_says_all_and_two_ranks_agree() -> None:
    told = run("doctor", "--ranks", "2", "--json")
    assert told.returncode == 0, told.stdout
    report = json.loads(told.stdout)
    names = [finding["name"] for finding in report["findings"]]
    assert report["ok"]
    assert {"Python", "mpirun", "horovod", "compiled loops", "transports", "compressed steps"} <= set(names)
    assert len(names) == len(set(names))
    assert "bit-identical on 2 ranks" in report["findings"][-1]["found"]


def test_what_is_missing_is_shown_with_the_way_out_and_fails(tmp_path: Path) -> None:
    told = run("doctor", "--ranks", "2", PATH=str(tmp_path))
    assert told.returncode == 1
    row = next(line for line in told.stdout.splitlines() if "mpirun" in line)
    assert "failure: not on PATH" in row
    assert "apt-get install openmpi-bin" in row


def test_what_only_some_runs_need_does_not_fail(tmp_path: Path) -> None:
    told = run("doctor", PATH=str(tmp_path))
    assert told.returncode == 0, told.stdout
    assert "warning: not on PATH" in told.stdout
    assert "Gloo used" in told.stdout


def test_it_loads_no_framework_itself() -> None:
    program = (
        "import sys; from hvd_adaptive.cli.app import app; app(['doctor'], standalone_mode=False); print(sorted(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    loaded = told.stdout.splitlines()[-1]
    assert "'hvd_adaptive.doctor.trial'" in loaded
    for framework in ("torch", "tensorflow", "horovod", "mpi4py"):
        assert f"'{framework}'" not in loaded


@pytest.mark.parametrize(
    ("arguments", "said"), [(("doctor", "--gloo"), "--ranks 2 --gloo"), (("doctor", "--ranks", "0"), "'--ranks'")]
)
def test_arguments_that_are_not_legal_are_told(arguments: tuple[str, ...], said: str) -> None:
    told = run(*arguments)
    assert told.returncode == 2
    assert said in told.stderr


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.strip() == "0.1.0"


@pytest.mark.skipif(os.environ.get("HVD_ADAPTIVE_TESTED") != "wheel", reason="only scripts/test.sh installs the wheel first")
def test_the_command_is_installed() -> None:
    command = str(Path(sys.executable).with_name("hvd-adaptive"))
    assert subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.strip() == "0.1.0"
