"""Whether the compiled loops load, and are kept for the next run."""

import time

from hvd_adaptive.doctor.finding import Finding

_ADVICE = "set NUMBA_CACHE_DIR to a folder that every rank can write to"


def examine() -> Finding:
    """Compile what steps call, or take it from disk."""
    start = time.perf_counter()
    try:
        from hvd_adaptive.ops import host_ops, kernels  # noqa: PLC0415 - numba fails here already, if no folder can be written

        host_ops.load()
    except (ImportError, OSError, RuntimeError) as error:
        return Finding("compiled loops", "failure", f"{type(error).__name__}: {error}", f"{_ADVICE}, or install numba again")
    told = kernels.positions_from.stats
    how = "taken from" if told.cache_hits else "compiled, kept in"
    return Finding("compiled loops", "ok", f"{how} {told.cache_path} in {time.perf_counter() - start:.1f} s")
