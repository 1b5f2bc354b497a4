"""Shares for processes, for as long as a block lasts."""

from __future__ import annotations

import subprocess
import time
from typing import Any, Dict, Mapping, Optional, Sequence

from ._api import _UNCHANGED, Client, ClientInfo, Group, GroupInfo, Refused
from ._limit import Limit
from ._report import Report, Row

#: Refusals of a client that is no more.
_GONE = ("no-such-client", "leaving")


class Share:
    """Processes with shares: a context manager, made by :func:`share`. At its end all are let go, and run on."""

    def __init__(
        self, what: Mapping[str, Any], client: Optional[Client] = None, group: Optional[Group] = None
    ) -> None:
        self._what, self._client, self._group = dict(what), client or Client(), group
        self._ids: Dict[str, int] = {}
        #: What was last known of each, while it took part.
        self._known: Dict[str, ClientInfo] = {}
        self._began = time.monotonic()
        self._last: Optional[Report] = None

    def __enter__(self) -> Share:
        self._began = time.monotonic()
        try:
            for name, target in self._what.items():
                self.attach(name, *(target if isinstance(target, tuple) else (target,)))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def attach(self, name: str, process: Any, share: int = 1, limit: Limit = None) -> None:
        """One more process with its descendants: a pid, something with a pid, or a selector."""
        if name in self._ids:
            raise ValueError(f"{name!r} has a process already; give it another name")
        info = self._client.attach(process, share, limit=limit, name=name, numbered=True, group=self._group)
        if isinstance(self._group, tuple):
            self._group = self._group[0]  # It has its share; who changes that later is not overruled.
        self._ids[name], self._known[name] = info.id, info

    def run(
        self, name: str, argv: Sequence[str], share: int = 1, limit: Limit = None, **popen: Any
    ) -> subprocess.Popen[Any]:
        """Starts a command with a share, in a session of its own unless `popen` says otherwise. The caller waits for it."""
        popen.setdefault("start_new_session", True)
        process = subprocess.Popen(argv, **popen)
        try:
            self.attach(name, process, share, limit)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def set(self, name: str, share: Optional[int] = None, limit: Limit = _UNCHANGED) -> None:
        """Another share, or another limit (None lifts it), from now on."""
        self._known[name] = self._client.change(self._ids[name], share=share, limit=limit)

    def set_group(self, share: int) -> GroupInfo:
        """Another share for all together, among what is beside their group."""
        if self._group is None:
            raise ValueError("these have no group: say group='build' where they are shared")
        path = self._group if isinstance(self._group, str) else self._group[0]
        return self._client.change_group(path, share=share)

    def pause(self, name: str) -> None:
        """Holds one until it is resumed; its share goes to the others."""
        self._client.change(self._ids[name], paused=True)

    def resume(self, name: str) -> None:
        """Lets a paused one go on."""
        self._client.change(self._ids[name], paused=False)

    def report(self) -> Report:
        """What each was to get and got so far; after the end, what it was then."""
        if self._last is not None:
            return self._last
        rows = []
        now = {name: self._look(name) for name in self._ids}
        effective = sum(self._known[name].effective_fraction for name in now)
        service = sum(info.service_ns for info in now.values())
        for name, info in now.items():
            known = self._known[name]
            rows.append(
                Row(
                    name=name,
                    share=known.share,
                    limit_ppm=known.limit_ppm,
                    target=known.effective_fraction / effective if effective else 0.0,
                    achieved=info.service_ns / service if service else 0.0,
                    cpu_seconds=info.service_ns / 1e9,
                    state=info.state,
                )
            )
        return Report(rows, time.monotonic() - self._began)

    def _look(self, name: str) -> ClientInfo:
        try:
            info = self._client.client(self._ids[name])
        except Refused as refusal:
            if refusal.code not in _GONE:
                raise
            return self._known[name]
        # One that has left, or is paused, takes no part: what it was due is what it was before.
        if info.effective_fraction > 0:
            self._known[name] = info
        return info

    def close(self) -> None:
        """Lets all go, as at the end of the block. The report stays."""
        if self._last is not None:
            return
        try:
            self._last = self.report() if self._ids else Report([], time.monotonic() - self._began)
        finally:
            for ident in self._ids.values():
                try:
                    self._client.detach(ident)
                except Refused as refusal:
                    if refusal.code not in _GONE:
                        raise


def share(
    what: Mapping[str, Any], *, client: Optional[Client] = None, group: Optional[Group] = None
) -> Share:
    """Divides the CPU among processes by share for as long as the block lasts::

        with divvy.share({"a": process, "b": (4711, 3), "c": ("user:bob", 1, "50%")}) as shares:
            ...

    A value is a process, or a tuple of a process, its share (1 if there is none) and its limit. A process is a pid or
    anything with one (``subprocess.Popen``, ``multiprocessing.Process``, ...) and stands for itself and all its
    descendants; or it is a selector as `divvy share` has them. With a `group` (``"build"``, or ``("build", 3)`` with a
    share) all of them have that group's share together, beside whatever else is divided.
    """
    return Share(what, client, group)
