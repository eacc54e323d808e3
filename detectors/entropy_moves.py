"""Bounds of A>0 that steer entropy, by what was measured in this run: `raising(history, since)` where entropy is too
low, `lowering()` where it is too high.

A bound that gives a regime more weight lifts entropy only where the tokens of that regime do. DISPO (2602.00983)
reports that R1 does and R2 does not; ASPO (2510.06062) and our own lab see the opposite. So a measured effect decides
(`R1.entropy_effect`, `R2.entropy_effect`, summed since the onset), and without one the text says that the paper is the
only ground. `drive` still wants the bound to bind, or the regime to stand out.
"""

from __future__ import annotations

from collections.abc import Sequence

from regimescope.detectors.driver import BucketHistory, Move

_RAISE_R1 = Move(
    regime="R1", side="high", bound="pos.w_max", direction="raise", target=11.0, text="pos_w_max_raise_prior"
)
_LIFT_R1 = Move(
    regime="R1", side="high", bound="pos.w_max", direction="raise", target=11.0, text="pos_w_max_raise_lifts"
)
_HOLD_R2 = Move(regime="R2", side="low", bound="pos.w_min", direction="raise", target=0.8, text="pos_w_min_raise_binds")
_LIFT_R2 = Move(regime="R2", bound="pos.w_min", direction="raise", target=0.8, text="pos_w_min_raise_lifts")
_LOWER = (
    Move(regime="R1", entropy=True, bound="pos.w_max", direction="lower", target=1.28),
    Move(regime="R2", side="low", entropy=True, bound="pos.w_min", direction="lower", target=0.0),
)


def raising(history: BucketHistory, since: int) -> Sequence[Move]:
    """More weight on a regime unless its tokens were measured as pulling entropy down since step `since`."""
    moves: list[Move] = []
    for regime, unknown, lifts in (("R1", _RAISE_R1, _LIFT_R1), ("R2", _HOLD_R2, _LIFT_R2)):
        effect = history.entropy_effect(regime, since)
        if effect is None:
            moves.append(unknown)
        elif effect > 0:
            moves.append(lifts)
    return moves


def lowering() -> Sequence[Move]:
    """Less weight on the regime that was measured as lifting entropy most; nothing without a measured effect."""
    return _LOWER
