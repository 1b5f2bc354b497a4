"""Pools of workers with a share: all workers of one are one client.

The workers are in a process group of their own, which a small process keeps alive: that is what divvyd knows the pool by. So
Ctrl-C in a terminal goes to the program and not to its workers, and a worker cannot read from the terminal.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing.pool
import os
import subprocess
import sys
import weakref
from typing import Any, Callable, Optional, Tuple

from ._api import _UNCHANGED, Client, Error, Group, Refused
from ._limit import Limit
from ._report import Report
from ._share import Share

#: Leads the group until its input ends: with the pool, or with the program, however that ended.
_KEEPER = "import os,sys\nos.setpgid(0, 0)\nos.write(1, b'.')\nos.read(0, 1)"


class _Workers:
    """A process group of the pool's, and the client that it is."""

    def __init__(
        self, name: str, share: int, limit: Limit, client: Optional[Client], group: Optional[Group]
    ) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        try:
            if self._keeper.stdout.read(1) != b".":
                raise Error(f"start {sys.executable} to keep the pool's process group: it ended at once")
            self.pgid = self._keeper.pid
            self.shares = Share({}, client, group)
            self.shares.attach(name, f"group:{self.pgid}", share, limit)
        except BaseException:
            self._end_keeper()
            raise

    def _end_keeper(self) -> None:
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        # A keeper that is held does not see that its input ended.
        self._keeper.kill()
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait()

    def close(self) -> None:
        try:
            self.shares.close()
        finally:
            self._end_keeper()


def _join(pgid: int, initializer: Optional[Callable[..., Any]], initargs: Tuple[Any, ...]) -> None:
    """In a worker, before its first task."""
    os.setpgid(0, pgid)
    if initializer is not None:
        initializer(*initargs)


class _Shared:
    """What both pools have beside their own."""

    _workers: _Workers
    _name: str
    _finalizer: Any

    def _begin(
        self, name: str, share: int, limit: Limit, client: Optional[Client], group: Optional[Group]
    ) -> None:
        self._name = name
        self._workers = _Workers(name, share, limit, client, group)
        self._finalizer = weakref.finalize(self, self._workers.close)

    def set_share(self, share: Optional[int] = None, limit: Limit = _UNCHANGED) -> None:
        """Another share, or another limit (None lifts it), for all workers together, from now on."""
        self._workers.shares.set(self._name, share, limit)

    def report(self) -> Report:
        """What the workers had so far; after the end, in all."""
        return self._workers.shares.report()


class Pool(multiprocessing.pool.Pool, _Shared):
    """A ``multiprocessing.Pool`` whose workers together have a share of the CPU, and a limit if one is given."""

    def __init__(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Tuple[Any, ...] = (),
        maxtasksperchild: Optional[int] = None,
        context: Any = None,
        *,
        share: int = 1,
        limit: Limit = None,
        name: str = "pool",
        client: Optional[Client] = None,
        group: Optional[Group] = None,
    ) -> None:
        self._begin(name, share, limit, client, group)
        try:
            super().__init__(
                processes, _join, (self._workers.pgid, initializer, tuple(initargs)), maxtasksperchild, context
            )
        except BaseException:
            self._finalizer()
            raise

    def terminate(self) -> None:
        super().terminate()
        self._finalizer()

    def join(self) -> None:
        super().join()
        self._finalizer()


class ProcessPoolExecutor(concurrent.futures.ProcessPoolExecutor, _Shared):
    """A ``concurrent.futures.ProcessPoolExecutor`` whose workers together have a share of the CPU, and a limit if given."""

    def __init__(
        self,
        max_workers: Optional[int] = None,
        mp_context: Any = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Tuple[Any, ...] = (),
        *,
        share: int = 1,
        limit: Limit = None,
        name: str = "executor",
        client: Optional[Client] = None,
        group: Optional[Group] = None,
        **others: Any,
    ) -> None:
        self._begin(name, share, limit, client, group)
        try:
            super().__init__(max_workers, mp_context, _join, (self._workers.pgid, initializer, tuple(initargs)), **others)
        except BaseException:
            self._finalizer()
            raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        # Workers that are not waited for stay what they are until the program ends.
        if wait:
            self._finalizer()
