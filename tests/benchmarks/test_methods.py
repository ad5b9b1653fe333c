"""The benchmark of methods prints a line for each method and scope."""

import json
import subprocess
import sys
from pathlib import Path

from hvd_adaptive.compress import USUAL

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "methods.py"
SCOPES = ["layer-wise", "bucketed", "entire-model"]


def test_every_method_and_scope_has_a_line() -> None:
    command = [sys.executable, str(BENCHMARK), "--ranks", "3", "--scale", "60", "--json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [(line["method"], line["scope"]) for line in lines] == [(repr(m), scope) for m in USUAL for scope in SCOPES]
    for line in lines:
        assert line["ranks"] == 3
        assert line["encode_seconds"] >= 0
        assert line["decode_seconds"] > 0
    found = {(line["method"], line["scope"]): line for line in lines}
    assert found["Identity()", "entire-model"]["bytes_per_element"] == 4.0
    assert found["Identity()", "layer-wise"]["relative_error"] < 1e-6
    assert abs(found["SignSGD(scaled=True)", "entire-model"]["bytes_per_element"] - 1 / 8) < 1e-3
    top_k = [found["TopK(factor=100.0)", scope]["relative_error"] for scope in ("entire-model", "layer-wise")]
    assert 0.1 < top_k[0] < top_k[1] < 1
