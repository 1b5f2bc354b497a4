"""divvyd's API over its unix socket: what to ask, and where."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import shutil
import socket as sockets
import stat
import struct
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from ._limit import Limit, limit_ppm

_SYSTEM_SOCKET = "/run/divvy/api.sock"
#: A divvyd may end between two calls: so often another is started.
_ATTEMPTS = 5
#: Bytes of an answer at most.
_ANSWER_MAX = 64 << 20


class Error(Exception):
    """What went wrong on the way to divvyd and back."""


class NotRunning(Error):
    """No divvyd runs, and none was, or could be, started."""


class Refused(Error):
    """divvyd's refusal: `code` for programs, as in ``docs/openapi.json``; `message` and `fix` for people."""

    def __init__(self, code: str, message: str, fix: str = "") -> None:
        super().__init__(f"{message}; {fix}" if fix else message)
        self.code, self.message, self.fix = code, message, fix


@dataclasses.dataclass(frozen=True)
class ClientInfo:
    """One client, as divvyd tells. Fractions have 1 for all; `raw` is the whole answer."""

    id: int
    name: str
    selector: str
    share: int
    #: The most that it may have, in millionths of one CPU; None for no limit.
    limit_ppm: Optional[int]
    #: What the share comes to, with what threads and limits allow, as a fraction of all clients'.
    effective_fraction: float
    #: CPU time as a fraction of all clients', since shares or clients changed.
    achieved_fraction: float
    #: CPU time since it became a client.
    service_ns: int
    #: running, held, limited, asleep, stopped, paused or left.
    state: str
    nr_members: int
    not_permitted: int
    #: The path of the group that it is in; None for none.
    group: Optional[str]
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ClientInfo:
        names = [field.name for field in dataclasses.fields(cls) if field.name != "raw"]
        return cls(raw=raw, **{name: raw.get(name) for name in names})  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class GroupInfo:
    """Clients that have a share together, which is divided among them. Numbers are sums over them."""

    #: Its path: ``build``, or ``build/tests`` for a group within a group.
    name: str
    #: Among the clients and groups beside it.
    share: int
    effective_fraction: float
    achieved_fraction: float
    #: `achieved_fraction / effective_fraction - 1`; 0 where nothing was received.
    relative_error: float
    service_ns: int
    #: How many they are.
    clients: int
    #: Whether all of them are.
    paused: bool

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> GroupInfo:
        return cls(**{field.name: raw[field.name] for field in dataclasses.fields(cls)})


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket, once it is known who serves it."""

    def __init__(self, path: str, timeout: float, is_system: bool) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path, self._is_system = path, is_system

    def connect(self) -> None:
        self.sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            raise
        if self._is_system:
            size = struct.calcsize("3i")
            _, uid, _ = struct.unpack("3i", self.sock.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, size))
            if uid not in (0, os.geteuid()):
                self.sock.close()
                raise Error(
                    f"the socket {self._path} is served by user {uid}, who is neither root nor you: not asked; "
                    "name the right one in DIVVY_SYSTEM_SOCKET"
                )


def runtime_dir() -> str:
    """The directory of the user's own divvyd, whether or not it is there."""
    named = os.environ.get("DIVVY_RUNTIME_DIR")
    if named:
        if not os.path.isabs(named):
            raise Error(f"DIVVY_RUNTIME_DIR={named}: give the whole path, from / on")
        return named
    uid = os.geteuid()
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"):
        try:
            if parent and os.stat(parent).st_uid == uid and os.path.isdir(parent):
                return os.path.join(parent, "divvy")
        except OSError:
            pass  # Another user's, or not there.
    return f"/tmp/divvy-{uid}"


def _own_socket() -> str:
    directory = runtime_dir()
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return os.path.join(directory, "api.sock")
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not private:
        raise Error(
            f"runtime directory {directory}: it is not yours alone; chmod 700 it, or name another one in DIVVY_RUNTIME_DIR"
        )
    return os.path.join(directory, "api.sock")


def _place() -> Tuple[str, bool]:
    """The socket to ask, and whether it is the system's: as `divvy` decides."""
    mode = os.environ.get("DIVVY_MODE", "")
    system = os.environ.get("DIVVY_SYSTEM_SOCKET") or _SYSTEM_SOCKET
    if mode not in ("", "user", "system"):
        raise Error(f"DIVVY_MODE={mode}: say user (your own divvyd) or system (the system's), or leave it away")
    if mode == "system" or (mode == "" and os.path.exists(system)):
        return system, True
    return _own_socket(), False


def program(name: str) -> str:
    """Where `divvy` or `divvyd` is: ``$DIVVY_BIN``, a directory, else the PATH.

    Raises NotRunning where it is not.
    """
    directory = os.environ.get("DIVVY_BIN")
    found = shutil.which(name, path=directory) if directory else shutil.which(name)
    if found is None:
        where = f"DIVVY_BIN={directory}" if directory else "the PATH"
        raise NotRunning(f"{name} is not on {where}; install divvy, or name its directory in DIVVY_BIN")
    return found


def _start() -> None:
    """Starts the user's divvyd and waits until one serves."""
    environment = {key: value for key, value in os.environ.items() if key != "DIVVY_CLIENT"}
    done = subprocess.run(
        [program("divvyd"), "--user", "--background"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotRunning(said[-1] if said else f"divvyd ended with {done.returncode}")


@dataclasses.dataclass(frozen=True)
class Pid:
    """A process by its number, where a number alone would be a share: ``{"a": (divvy.Pid(4711), 3)}``."""

    pid: int


def selector_of(process: Any) -> str:
    """What names `process` to divvyd: a pid or anything with one (with all its descendants), or a selector as text."""
    if isinstance(process, str):
        if ":" not in process:
            raise ValueError(f"{process!r} is no selector; write 'tree:123', 'user:bob', 'name:cc1*', ...")
        return process
    pid = getattr(process, "pid", process)
    if isinstance(pid, bool) or not isinstance(pid, int) or pid <= 0:
        raise TypeError(f"{process!r} is no process: give a pid, something with a pid that has started, or a selector")
    return f"tree:{pid}"


_UNCHANGED: Any = object()

#: A group of clients, by its path (``build``, ``build/tests``); or the path and the share that the group is to have.
Group = Union[str, Tuple[str, int]]


def _put_group(new: Dict[str, Any], group: Optional[Group]) -> None:
    """Sets the group that a new client is to be in."""
    if group is None:
        return
    path, share = group if isinstance(group, tuple) else (group, None)
    if not isinstance(path, str) or isinstance(share, bool) or not isinstance(share, (int, type(None))):
        raise TypeError(f"{group!r} is no group: give its path, as 'build', or a path and a share, as ('build', 3)")
    new["group"] = path
    if share is not None:
        new["group_share"] = share


class Client:
    """divvyd, the system's or the user's own, as `divvy` would find it; `socket` is another.

    The user's own is started where none runs, unless `start` is false. Each call is a connection of its own, so a Client
    can be kept, and used by several threads.
    """

    def __init__(self, socket: Optional[str] = None, *, start: bool = True, timeout: float = 45.0) -> None:
        self._socket, self._start, self._timeout = socket, start, timeout

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of any path of the API (``docs/openapi.json``).

        Raises Refused for a refusal, NotRunning where nobody listens, Error for what else goes wrong.
        """
        last: Optional[Error] = None
        for _ in range(_ATTEMPTS):
            path_of_socket, is_system = (self._socket, False) if self._socket else _place()
            try:
                return self._ask(path_of_socket, is_system, method, path, body)
            except (FileNotFoundError, ConnectionRefusedError):
                last = NotRunning(f"no divvyd runs: nobody listens at {path_of_socket}")
                if is_system or self._socket or not self._start:
                    raise last from None
                _start()
            except Refused as refusal:
                if refusal.code != "leaving":
                    raise
                last = refusal
            except (OSError, http.client.HTTPException, ValueError) as cause:
                raise Error(f"talk to divvyd at {path_of_socket}: {cause}") from cause
        raise last or Error("no answer")

    def _ask(self, socket: str, is_system: bool, method: str, path: str, body: Any) -> Any:
        connection = _Connection(socket, self._timeout, is_system)
        try:
            headers = {"Accept": "application/json", "Connection": "close"}
            data = None
            if body is not None:
                data = json.dumps(body).encode()
                headers["Content-Type"] = "application/json"
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read(_ANSWER_MAX)
        finally:
            connection.close()
        if answer.status < 300:
            return json.loads(text) if text else None
        error = json.loads(text)["error"]
        raise Refused(error["code"], error["message"], error.get("fix", ""))

    def status(self) -> Dict[str, Any]:
        """The scheduler itself: its policy, CPUs, and what it has cost."""
        status: Dict[str, Any] = self.request("GET", "/v1/status")
        return status

    def clients(self) -> List[ClientInfo]:
        """All clients that have not left, by rising id."""
        return [ClientInfo.from_json(raw) for raw in self.request("GET", "/v1/clients")["clients"]]

    def client(self, key: Any) -> ClientInfo:
        """The client of that name or id, also one that has left not long ago."""
        return ClientInfo.from_json(self.request("GET", self._path(key)))

    def attach(
        self,
        process: Any,
        share: int = 1,
        *,
        limit: Limit = None,
        name: Optional[str] = None,
        numbered: bool = False,
        group: Optional[Group] = None,
    ) -> ClientInfo:
        """Makes a client of `process`: a pid or something with one, with all its descendants, or a selector.

        Where another client has the name, `numbered` adds a number to it. A `group` is made if it is not there, with the
        share 1 if none is given, and ends with its last client; only a user's own divvyd has any.
        """
        new: Dict[str, Any] = {"selector": selector_of(process)}
        _put_group(new, group)
        return self._add(new, share, limit, name, numbered)

    def run(
        self,
        argv: Sequence[str],
        share: int = 1,
        *,
        limit: Limit = None,
        name: Optional[str] = None,
        directory: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        group: Optional[Group] = None,
    ) -> ClientInfo:
        """Has divvyd start a command, with ``/dev/null`` as its standard streams."""
        command: Dict[str, Any] = {"argv": list(argv)}
        if directory is not None:
            command["dir"] = directory
        if env is not None:
            command["env"] = dict(env)
        new: Dict[str, Any] = {"command": command}
        _put_group(new, group)
        return self._add(new, share, limit, name, False)

    def _add(self, new: Dict[str, Any], share: int, limit: Limit, name: Optional[str], numbered: bool) -> ClientInfo:
        new["share"] = share
        ppm = limit_ppm(limit)
        if ppm:
            new["limit_ppm"] = ppm
        if name is not None:
            new["name"] = name
        if numbered:
            new["numbered"] = True
        return ClientInfo.from_json(self.request("POST", "/v1/clients", new))

    def change(
        self, key: Any, *, share: Optional[int] = None, limit: Limit = _UNCHANGED, paused: Optional[bool] = None
    ) -> ClientInfo:
        """Gives a client another share or limit (None lifts it), pauses or resumes it."""
        change: Dict[str, Any] = {}
        if share is not None:
            change["share"] = share
        if limit is not _UNCHANGED:
            change["limit_ppm"] = limit_ppm(limit)
        if paused is not None:
            change["paused"] = paused
        return ClientInfo.from_json(self.request("PATCH", self._path(key), change))

    def detach(self, key: Any) -> ClientInfo:
        """Lets a client go; its processes run on undivided."""
        return ClientInfo.from_json(self.request("DELETE", self._path(key)))

    def groups(self) -> List[GroupInfo]:
        """All groups, by path: whatever a group is in comes before it. Only a user's own divvyd has any."""
        return [GroupInfo.from_json(raw) for raw in self.request("GET", "/v1/clients").get("groups", [])]

    def change_group(self, group: str, *, share: Optional[int] = None, paused: Optional[bool] = None) -> GroupInfo:
        """Gives a group another share among what is beside it, pauses or resumes all its clients."""
        change = {key: value for key, value in (("share", share), ("paused", paused)) if value is not None}
        return GroupInfo.from_json(self.request("PATCH", self._group_path(group), change))

    def detach_group(self, group: str) -> GroupInfo:
        """Lets all clients of a group go, and so the group; says what it was like."""
        return GroupInfo.from_json(self.request("DELETE", self._group_path(group)))

    def events(self, since: int = 0) -> Dict[str, Any]:
        """What happened to clients, from that number on."""
        events: Dict[str, Any] = self.request("GET", f"/v1/events?since={since}")
        return events

    def explain(self, pid: int) -> Dict[str, Any]:
        """What would be done with a process, and why."""
        explained: Dict[str, Any] = self.request("GET", f"/v1/explain/{pid}")
        return explained

    def doctor(self) -> List[Dict[str, Any]]:
        """What this machine permits, and how to get more."""
        findings: List[Dict[str, Any]] = self.request("GET", "/v1/doctor")
        return findings

    @staticmethod
    def _path(key: Any) -> str:
        return "/v1/clients/" + quote(str(key), safe="")

    @staticmethod
    def _group_path(group: str) -> str:
        return "/v1/groups/" + quote(group, safe="")
