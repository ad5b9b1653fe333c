"""Draws what ``gravac.py`` found."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(found: dict[str, Any], measure: str, log: Path | None, target: Path) -> None:
    """Quality over seconds of all runs; factor and gains over steps of the run that ``log`` holds.

    Args:
        found: the benchmark's results, with curves.
        measure: the quality's name.
        log: lines of JSON of the GraVAC run; None without one.
        target: the picture's file.
    """
    records = [json.loads(line) for line in log.read_text().splitlines()] if log else []
    figure, axes = plt.subplots(3 if records else 1, 1, figsize=(9, 10 if records else 4), squeeze=False, layout="constrained")
    _qualities(axes[-1][0], found["runs"], measure)
    if records:
        _factors(axes[0][0], records)
        _gains(axes[1][0], records)
    figure.suptitle(f"{found['task']}, {found['ranks']} ranks, link {found['link']}")
    figure.savefig(target, dpi=120)
    plt.close(figure)


def _factors(axes: Any, records: list[dict[str, Any]]) -> None:
    axes.step([record["step"] for record in records], [record["factor"] for record in records], where="post", linewidth=0.8)
    axes.set(yscale="log", xlabel="step", ylabel="GraVAC's factor")


def _gains(axes: Any, records: list[dict[str, Any]]) -> None:
    shown = [record for record in records if record["gains"]]
    for factor in sorted({factor for record in shown for factor in record["gains"]}, key=float):
        points = [(record["step"], record["gains"][factor]) for record in shown if factor in record["gains"]]
        axes.plot(*zip(*points, strict=True), label=f"{float(factor):g}", linewidth=0.8)
    axes.set(xlabel="step", ylabel="gain", ylim=(0, 1))
    if shown:
        axes.legend(title="factor", fontsize="small")


def _qualities(axes: Any, runs: dict[str, dict[str, Any]], measure: str) -> None:
    for name, run in runs.items():
        _, seconds, quality = zip(*run["curve"], strict=True)
        axes.plot(seconds, quality, label=name, marker=".", linewidth=0.8)
    axes.set(xlabel="seconds of training", ylabel=measure, yscale="log" if measure == "perplexity" else "linear")
    axes.legend(fontsize="small")
