"""``hvd.elastic`` on two hosts, of which one goes and comes back."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(400)]  # ranks start three times, one after the other
SECONDS = 100
"""For a change of hosts: Horovod looks once a second, ends the old ranks, and new ones import torch on a busy machine."""
STOP_SECONDS = 60
"""From the last step until the launcher ended, which takes seconds."""


class Run:
    """One that is under way."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder = folder
        self._process = process

    def steps(self) -> list[dict[str, Any]]:
        file = self.folder / "steps.jsonl"
        return (
            [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if file.exists()
            else []
        )

    def wait(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Until the last step is such a one."""
        deadline = time.monotonic() + SECONDS
        while not (steps := self.steps()) or not reached(steps[-1]):
            assert self._process.poll() is None, (self.folder / "output.txt").read_text()
            assert time.monotonic() < deadline, (steps[-1:], (self.folder / "output.txt").read_text())
            time.sleep(0.2)


def test_a_host_goes_and_comes_back(two_hosts: Any, programs: Path, rank_environment: Any, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("a:1\nb:1\n")
    discovery = tmp_path / "discover"
    discovery.write_text(f"#!/bin/sh\ncat {tmp_path}/hosts.txt\n")
    discovery.chmod(0o755)
    command = ["horovodrun", "--gloo", "-np", "2", "--min-np", "1", "--max-np", "2", "--host-discovery-script", str(discovery)]
    command += [sys.executable, str(programs / "elastic_training.py"), str(tmp_path)]
    with two_hosts.start(*command, folder=tmp_path, environment=rank_environment, output=tmp_path / "output.txt") as process:
        run = Run(tmp_path, process)
        run.wait(lambda step: step["size"] == 2 and step["step"] >= 5)
        (tmp_path / "hosts.txt").write_text("a:1\n")
        run.wait(lambda step: step["size"] == 1 and step["since"] >= 5)
        (tmp_path / "hosts.txt").write_text("a:1\nb:1\n")
        run.wait(lambda step: step["size"] == 2 and step["since"] >= 5)
        (tmp_path / "stop").touch()
        assert process.wait(STOP_SECONDS) == 0, (tmp_path / "output.txt").read_text()
    assert_went_on(run.steps())


def assert_went_on(steps: list[dict[str, Any]]) -> None:
    sizes = [step["size"] for step in steps]
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before] == [2, 1, 2]
    numbers = [step["step"] for step in steps]
    assert numbers == sorted(numbers)  # nothing was trained twice, for every step was committed
    assert numbers[-1] == len(numbers)
    for step in steps:
        assert step["compressed"] == step["step"]  # what the controller learned went on too
        assert len({digest for _, digest in step["ranks"]}) == 1, step
        assert sorted(host for host, _ in step["ranks"]) == ["a", "b"][: step["size"]]  # Horovod picks who is rank 0
    assert steps[-1]["loss"] < 0.9 * steps[0]["loss"]
