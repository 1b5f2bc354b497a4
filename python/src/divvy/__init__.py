"""Divide the CPU among processes and pools in proportion to shares, and cap them, as an ordinary user.

    with divvy.share({"build": 3, "tests": 1}) as shares:
        build = shares.run("build", ["make"])
        tests = shares.run("tests", ["make", "check"])
        build.wait()
    print(shares.report())

:func:`share` takes shares of commands to come, or processes that there are; :class:`Pool` and :class:`ProcessPoolExecutor` are
pools with a share, and :class:`Client` is all of divvyd's API. What divides is divvyd, which is
started where none runs, and leaves by itself.
"""

from ._api import Client, ClientInfo, Error, Group, GroupInfo, NotRunning, Pid, Refused
from ._limit import Limit
from ._pools import Pool, ProcessPoolExecutor
from ._report import Report, Row
from ._share import Share, share

__all__ = [
    "Client",
    "ClientInfo",
    "Error",
    "Group",
    "GroupInfo",
    "Limit",
    "NotRunning",
    "Pid",
    "Pool",
    "ProcessPoolExecutor",
    "Refused",
    "Report",
    "Row",
    "Share",
    "share",
]
__version__ = "0.1.0"
