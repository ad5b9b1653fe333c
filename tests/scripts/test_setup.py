"""What the set-up says on machines it cannot serve."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "scripts" / "setup.sh"
TOOLS = ("bash", "cat", "cut", "dirname", "echo", "env", "head", "id", "xargs", "sed", "cksum")


def program(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return file


def setup(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SETUP), *options], env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_another_python_is_named_with_the_way_out(tmp_path: Path) -> None:
    python = program(tmp_path, "python3.14", 'if [ "$1" = -V ]; then echo Python 3.14.1; else exit 1; fi')
    run = setup(PYTHON=str(python))
    assert run.returncode != 0
    assert "needs Python 3.10, 3.11 or 3.12" in run.stderr
    assert "3.14.1" in run.stderr
    assert "PYTHON=python3.11" in run.stderr


def test_an_option_it_does_not_know_is_refused_with_those_it_does() -> None:
    run = setup("--environment", "--quick")
    assert run.returncode != 0
    assert "knows --hosts, --no-tests and --environment; given: --quick" in run.stderr


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """A PATH with Python and a shell, but without MPI, compiler or sudo."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    python = program(tmp_path, "python3", 'case "$1$2" in -V) echo Python 3.11.2;; *print*) echo python3.11;; esac')
    return {"PATH": str(tmp_path), "PYTHON": str(python)}


def test_without_apt_the_missing_packages_are_named(bare_machine: dict[str, str]) -> None:
    run = setup(**bare_machine)
    assert run.returncode != 0
    assert "missing: openmpi-bin libopenmpi-dev g++ make openssh-client" in run.stderr
    assert "there is no apt-get" in run.stderr


def test_without_root_the_command_to_ask_for_is_named(bare_machine: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path, "apt-get", "exit 99")
    (tmp_path / "id").unlink()
    program(tmp_path, "id", "echo 1000")
    run = setup(**bare_machine)
    assert run.returncode != 0
    assert "neither root nor sudo" in run.stderr
    assert "apt-get install openmpi-bin libopenmpi-dev g++ make openssh-client" in run.stderr


def stamp(**environment: str) -> str:
    """By which the set-up knows whether an environment is up to date."""
    program = """python=python3 frameworks=requirements/frameworks.txt
        eval "$(sed -n '/^environment_stamp()/,/^}/p' scripts/setup.sh)"
        environment_stamp"""
    folder, variables = SETUP.parents[1], os.environ | environment
    return subprocess.run(["bash", "-c", program], cwd=folder, env=variables, capture_output=True, text=True, check=True).stdout


def test_what_horovod_is_built_with_makes_another_environment_and_what_it_runs_with_does_not() -> None:
    assert stamp() == stamp(HOROVOD_FUSION_THRESHOLD="0") != ""
    assert stamp() != stamp(HOROVOD_GPU_OPERATIONS="NCCL")
