"""Numbers as logs spell them: `1.5`, `'0.0415'`, `np.float64(1.1)`, `tensor(0.5)`, nan, -Infinity."""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf(?:inity)?|Inf(?:inity)?)"
"A number without its wrapping, as part of a pattern."
_WRAPPED = re.compile(
    rf"""\s*['"]?(?:(?:np|numpy|torch|jnp)\.)?(?:[A-Za-z_]\w*\()?\s*({NUMBER})\s*"""
    rf"""(?:,\s*(?:dtype|device|grad_fn)=[^)]*)?\)?['"]?\s*"""
)


def number_of(value: object) -> float | None:
    """The number that a value of a log is; None for what is none. True and False are 1 and 0.

    >>> number_of("np.float64(1.25)"), number_of(" nan"), number_of("12/300"), number_of(True)
    (1.25, nan, None, 1.0)
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if not isinstance(value, str) or len(value) > 80:
        return None
    try:
        return float(value)
    except ValueError:
        match = _WRAPPED.fullmatch(value)
        return None if match is None else float(match.group(1))


def numbers_of(record: Mapping[str, object], prefix: str = "", depth: int = 4) -> dict[str, float]:
    """The numbers of a record, those of objects inside it as `outer/inner`; texts, lists and nulls are left out.

    >>> numbers_of({"loss": "0.5", "env": {"math": {"reward": 1}}, "name": "a", "none": None})
    {'loss': 0.5, 'env/math/reward': 1.0}
    """
    found: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            if depth:
                found |= numbers_of(value, f"{prefix}{key}/", depth - 1)
            continue
        number = value if type(value) is float else number_of(value)
        if number is not None:
            found[f"{prefix}{key}"] = number
    return found
