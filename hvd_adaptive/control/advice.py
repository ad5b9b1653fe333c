"""What a user is told whose every step is dense."""

from decimal import ROUND_FLOOR, Context

_ROUNDED_DOWN = Context(prec=3, rounding=ROUND_FLOOR)


def advice(window: int, low: float, best: float | None, epsilon: float) -> tuple[str, ...]:
    """Names the epsilon that would have compressed; nothing where none would, or where steps were compressed.

    Args:
        window: its steps.
        low: the smallest factor.
        best: the largest gain there if all steps were dense, else None.
        epsilon: what it did not reach.
    """
    if not best:
        return ()
    reached = float(_ROUNDED_DOWN.create_decimal(best))
    return (
        f"GraVAC: every step of the last {window} was dense, because the gain at factor {low:g} was {best:.3g} at most, "
        f"below epsilon={epsilon:g}; epsilon={reached:.3g} would have compressed",
    )
