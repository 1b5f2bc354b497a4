"""What processes were to get, and got: as text, as a table of a notebook, and as data."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union, overload

from ._limit import shown


@dataclasses.dataclass(frozen=True)
class Row:
    """One client. Fractions are of the CPU time of all rows of the report."""

    name: str
    share: int
    #: In millionths of one CPU; None for no limit.
    limit_ppm: Optional[int]
    #: What shares, threads and limits come to.
    target: float
    achieved: float
    cpu_seconds: float
    #: running, held, limited, asleep, stopped, paused or left.
    state: str

    @property
    def error(self) -> float:
        """(achieved - target) as a fraction of target; 0 where there is no target."""
        return self.achieved / self.target - 1.0 if self.target > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class Report(Sequence[Row]):
    """The rows of a :func:`divvy.share` or a pool, and how long it has been."""

    rows: List[Row]
    wall_seconds: float

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, key: Union[int, str]) -> Row: ...

    @overload
    def __getitem__(self, key: slice) -> List[Row]: ...

    def __getitem__(self, key: Union[int, str, slice]) -> Union[Row, List[Row]]:
        """A row, by its number or its name."""
        if isinstance(key, str):
            for row in self.rows:
                if row.name == key:
                    return row
            raise KeyError(key)
        return self.rows[key]

    def to_dict(self) -> Dict[str, Any]:
        """The report as plain data."""
        rows = [{**dataclasses.asdict(row), "error": row.error} for row in self.rows]
        return {"wall_seconds": self.wall_seconds, "rows": rows}

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows] + [6])
        head = f"{'client':<{width}} {'share':>7} {'limit':>8} {'target %':>9} {'achieved %':>10} {'error %':>8} {'CPU time':>10}  state"
        lines = [head]
        for row in self.rows:
            lines.append(
                f"{row.name:<{width}} {row.share:>7} {shown(row.limit_ppm):>8} {row.target * 100:>9.2f} "
                f"{row.achieved * 100:>10.2f} {row.error * 100:>+8.2f} {row.cpu_seconds:>8.2f} s  {row.state}"
            )
        lines.append(f"in {self.wall_seconds:.1f} s; target and achieved: of the CPU time of these clients")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: a table with a bar for what each got, and a mark where its target is."""
        cells = ["client", "share", "limit", "target", "achieved", "", "error", "CPU time", "state"]
        head = "".join(f"<th style='text-align:left'>{cell}</th>" for cell in cells)
        body = []
        for row in self.rows:
            got, due = min(row.achieved, 1.0) * 100, min(row.target, 1.0) * 100
            bar = (
                "<div style='position:relative;width:12em;height:.9em;border:1px solid currentColor'>"
                f"<div style='width:{got:.2f}%;height:100%;background:currentColor;opacity:.45'></div>"
                f"<div style='position:absolute;left:{due:.2f}%;top:-2px;bottom:-2px;border-left:2px solid'></div></div>"
            )
            values = [
                escape(row.name),
                str(row.share),
                shown(row.limit_ppm),
                f"{row.target * 100:.2f} %",
                f"{row.achieved * 100:.2f} %",
                bar,
                f"{row.error * 100:+.2f} %",
                f"{row.cpu_seconds:.2f} s",
                escape(row.state),
            ]
            body.append("<tr>" + "".join(f"<td style='text-align:left'>{value}</td>" for value in values) + "</tr>")
        note = f"{self.wall_seconds:.1f} s; target (the mark) and achieved (the bar) are of the CPU time of these clients"
        return f"<table><caption>{note}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
