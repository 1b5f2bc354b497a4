"""Limits as people write them."""

from __future__ import annotations

import os
from decimal import Decimal, InvalidOperation
from typing import Optional, Union

#: A limit: ``"50%"`` of one CPU, ``"1.5"`` or ``1.5`` CPUs, ``None`` or ``"none"`` for none.
Limit = Union[str, float, None]

_PPM_MIN, _PPM_MAX = 10_000, 4_096_000_000


def limit_ppm(limit: Limit) -> int:
    """`limit` in millionths of one CPU, 0 for none.

    Raises ValueError for what is none, with what to write instead.
    """
    text = "none" if limit is None else str(limit).strip()
    if isinstance(limit, bool):
        raise ValueError(f"{limit!r} is no limit; write '50%' (of one CPU), 1.5 (CPUs) or None")
    if text == "none":
        return 0
    percent = text.endswith("%")
    try:
        number = Decimal(text.rstrip("%").strip())
    except InvalidOperation:
        raise ValueError(f"{limit!r} is no limit; write '50%' (of one CPU), 1.5 (CPUs) or None") from None
    if not number.is_finite():
        raise ValueError(f"{limit!r} is no limit; write '50%' (of one CPU), 1.5 (CPUs) or None")
    ppm = int((number * (10_000 if percent else 1_000_000)).to_integral_value())
    cpus = os.cpu_count() or 1
    if not percent and ppm > cpus * 1_000_000:
        raise ValueError(f"{limit!r} is more than the {cpus} CPUs there are; half of one CPU is '50%' or 0.5")
    if not _PPM_MIN <= ppm <= _PPM_MAX:
        raise ValueError(f"{limit!r}: a limit is 1% of one CPU to 4096 CPUs")
    return ppm


def shown(ppm: Optional[int]) -> str:
    """A limit in percent of one CPU, ``-`` for none."""
    return "-" if not ppm else f"{ppm / 10_000:g}%"
