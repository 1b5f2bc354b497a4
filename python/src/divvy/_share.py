"""Shares for processes, for as long as a block lasts."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ._api import _UNCHANGED, Client, ClientInfo, Group, GroupInfo, Refused
from ._limit import Limit, limit_ppm
from ._report import Report, Row

#: Refusals of a client that is no more.
_GONE = ("no-such-client", "leaving")
_SHARE_MAX = 1_000_000
#: Linux gives smaller numbers to the first processes of a machine or container only: they are shares.
_PID_MIN = 300


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_ours(pid: int) -> bool:
    """Whether `pid` is this process, one that it has started, or one that one of those has."""
    while pid > 0:
        if pid == os.getpid():
            return True
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                pid = int(stat.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return False


def _checked_share(name: str, share: Any) -> int:
    if not _is_number(share) or not 1 <= share <= _SHARE_MAX:
        raise ValueError(f"{name!r}: {share!r} is no share; a share is a whole number from 1 to {_SHARE_MAX}")
    return int(share)


def _parts(name: str, value: Any) -> Tuple[Any, int, Limit]:
    """What a value of the mapping says: a process, None for one that comes later; its share; its limit."""
    if _is_number(value):
        if value >= _PID_MIN and _is_ours(value):
            raise TypeError(
                f"{name!r}: {value} would be a share, and is the pid of this program or of a process that it has started; "
                f"write divvy.Pid({value}) for the process, (None, {value}) for the share"
            )
        return None, _checked_share(name, value), None
    if value is None:
        raise TypeError(f"{name!r}: None is no process; for one that comes later give its share, as in {{{name!r}: 3}}")
    if not isinstance(value, tuple):
        return value, 1, None
    if not 1 <= len(value) <= 3:
        raise TypeError(f"{name!r}: {value!r}: give a process, its share and its limit, as in (process, 3, '50%')")
    process = value[0]
    share = value[1] if len(value) > 1 else 1
    limit = value[2] if len(value) > 2 else None
    if _is_number(process):
        raise TypeError(
            f"{name!r}: the {process} of {value!r} may be a pid or a share; write divvy.Pid({process}) for a process, "
            "or None for one that comes later, as in (None, 3, '50%')"
        )
    if process is None:
        limit_ppm(limit)
        _checked_share(name, share)
    return process, share, limit


def _has_ended(process: Any) -> bool:
    """Whether `process`, of a kind that Python waits for, has ended: its number is still its own, for nobody has waited."""
    poll, is_alive = getattr(process, "poll", None), getattr(process, "is_alive", None)
    if callable(poll):
        return poll() is not None
    if callable(is_alive):
        return not is_alive()
    return getattr(process, "returncode", None) is not None


class Share:
    """Processes with shares: a context manager, made by :func:`share`. At its end all are let go, and run on."""

    def __init__(
        self, what: Mapping[str, Any], client: Optional[Client] = None, group: Optional[Group] = None
    ) -> None:
        self._client, self._group = client or Client(), group
        #: What is there at the beginning, and share and limit of each whose process has not come yet.
        self._first: List[Tuple[str, Any, int, Limit]] = []
        self._due: Dict[str, Tuple[int, Limit]] = {}
        for name, value in what.items():
            process, its_share, limit = _parts(name, value)
            if process is None:
                self._due[name] = its_share, limit
            else:
                self._first.append((name, process, its_share, limit))
        self._ids: Dict[str, int] = {}
        #: Those that had ended before they could become clients.
        self._over: Dict[str, Row] = {}
        #: What was last known of each, while it took part.
        self._known: Dict[str, ClientInfo] = {}
        self._began = time.monotonic()
        self._last: Optional[Report] = None

    def __enter__(self) -> Share:
        self._began = time.monotonic()
        try:
            for name, process, its_share, limit in self._first:
                self.attach(name, process, its_share, limit)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close()
        # A share that no process came for is a pid that was taken for one, or a name that was written otherwise.
        if kind is None and self._due:
            name, (its_share, _limit) = next(iter(self._due.items()))
            raise ValueError(
                f"{name!r} has the share {its_share}, and no process came for it: shares.run({name!r}, [...]) starts one, "
                f"shares.attach({name!r}, process) takes one; if {its_share} is a pid, write divvy.Pid({its_share})"
            )

    def attach(self, name: str, process: Any, share: Optional[int] = None, limit: Limit = _UNCHANGED) -> None:
        """One more process with its descendants: a pid, something with a pid, or a selector.

        Share and limit are, if not given, what :func:`share` was given for that name, else 1 and none. One that has ended
        before divvyd could look at it is in the report as one that has left, with no CPU time.
        """
        if name in self._ids or name in self._over:
            raise ValueError(f"{name!r} has a process already; give it another name")
        due_share, due_limit = self._due.get(name, (1, None))
        share = due_share if share is None else share
        limit = due_limit if limit is _UNCHANGED else limit
        try:
            info = self._client.attach(process, share, limit=limit, name=name, numbered=True, group=self._group)
        except Refused as refusal:
            if refusal.code != "no-such-process" or not _has_ended(process):
                raise
            self._over[name] = Row(name, share, limit_ppm(limit) or None, 0.0, 0.0, 0.0, "left")
            self._due.pop(name, None)
            return
        if isinstance(self._group, tuple):
            self._group = self._group[0]  # It has its share; who changes that later is not overruled.
        self._ids[name], self._known[name] = info.id, info
        self._due.pop(name, None)

    def run(
        self, name: str, argv: Sequence[str], share: Optional[int] = None, limit: Limit = _UNCHANGED, **popen: Any
    ) -> subprocess.Popen[Any]:
        """Starts a command, in a session of its own unless `popen` says otherwise. The caller waits for it.

        Share and limit are as with :meth:`attach`.
        """
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
        if name in self._due:
            due_share, due_limit = self._due[name]
            new_limit = due_limit if limit is _UNCHANGED else limit
            limit_ppm(new_limit)
            self._due[name] = due_share if share is None else _checked_share(name, share), new_limit
            return
        self._known[name] = self._client.change(self._id(name), share=share, limit=limit)

    def _id(self, name: str) -> int:
        if name in self._due:
            raise ValueError(f"{name!r} has no process yet: shares.run({name!r}, [...]) starts one")
        if name in self._over:
            raise ValueError(f"{name!r} has ended: nothing of it can be changed")
        return self._ids[name]

    def set_group(self, share: int) -> GroupInfo:
        """Another share for all together, among what is beside their group."""
        if self._group is None:
            raise ValueError("these have no group: say group='build' where they are shared")
        path = self._group if isinstance(self._group, str) else self._group[0]
        return self._client.change_group(path, share=share)

    def pause(self, name: str) -> None:
        """Holds one until it is resumed; its share goes to the others."""
        self._client.change(self._id(name), paused=True)

    def resume(self, name: str) -> None:
        """Lets a paused one go on."""
        self._client.change(self._id(name), paused=False)

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
        return Report([*rows, *self._over.values()], time.monotonic() - self._began)

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
            self._last = self.report()
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

        with divvy.share({"a": 3, "b": 1}) as shares:
            shares.run("a", ["make"])
            shares.attach("b", process)

        with divvy.share({"a": process, "b": (divvy.Pid(4711), 3), "c": ("user:bob", 1, "50%")}) as shares:
            ...

    A value is the share of a process that comes later, by `run` or `attach` with that name; or a process; or a tuple of
    a process, its share (1 if there is none) and its limit, with None for a process that comes later. A process is
    anything with a pid (``subprocess.Popen``, ``multiprocessing.Process``, :class:`Pid`, ...) and stands for itself and
    all its descendants; or it is a selector as `divvy share` has them. A number alone is no pid: a share that no process
    has come for raises ValueError at the end of the block. With a `group` (``"build"``, or ``("build", 3)`` with a share)
    all of them have that group's share together, beside whatever else is divided.
    """
    return Share(what, client, group)
