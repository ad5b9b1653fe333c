"""The simulation of many ranks draws the conclusions that follow from its model."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scaling.py"


def test_it_tells_where_another_exchange_takes_over(tmp_path: Path) -> None:
    picture = tmp_path / "scaling.png"
    command = [sys.executable, str(BENCHMARK), "--elements", "1000000", "--json", "--plot", str(picture)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert [row["ranks"] for row in found["rows"]] == [2**power for power in range(1, 13)]
    for row in found["rows"]:
        assert row["seconds"][row["best"]] == min(row["seconds"].values()) > 0
    for name, line in zip(("shared-support", "two-sided", "dense"), found["turns"], strict=True):
        less = [row["ranks"] for row in found["rows"] if row["seconds"][name] < row["seconds"]["gather"]]
        assert line == f"{name} takes less than gather from {less[0]} ranks on"
    assert picture.stat().st_size > 5000
