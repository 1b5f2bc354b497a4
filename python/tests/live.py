"""What the live tests share: a divvyd of their own on one CPU, and processes that compute."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest

import divvy
from divvy import _api

SPIN = ["sh", "-c", "while :; do :; done"]
#: How far a fraction may be from its target where the machine is busy with other things.
MAX_ERROR = 0.06


class Live(unittest.TestCase):
    """A runtime directory and a divvyd for each class."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="divvy-py-")
        cls.before = {key: os.environ.get(key) for key in ("DIVVY_RUNTIME_DIR", "DIVVY_MODE")}
        os.environ.update(DIVVY_RUNTIME_DIR=os.path.join(cls.dir, "run"), DIVVY_MODE="user")
        cpu = str(min(os.sched_getaffinity(0)))
        divvyd = [_api.program("divvyd"), "--user", "--background", "--linger", "forever", "--cpus", cpu]
        subprocess.run(divvyd, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        client = divvy.Client(start=False)
        try:
            for info in client.clients():
                client.detach(info.id)
            pid = client.status()["pid"]
            os.kill(pid, 15)
            deadline = time.monotonic() + 30
            while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
                time.sleep(0.02)
        except divvy.Error:
            pass  # It has left by itself.
        for key, value in cls.before.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value
        shutil.rmtree(cls.dir)

    def spin(self):
        return self.started(subprocess.Popen(SPIN, start_new_session=True))

    def started(self, process):
        """The same process, ended with the test."""
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def eventually(self, holds, patience=60):
        deadline = time.monotonic() + patience
        while not holds():
            self.assertLess(time.monotonic(), deadline, "waited in vain")
            time.sleep(0.05)

    def used(self, now, enough=2.0):
        """What each used since now, in seconds, by `now()`, once all together used enough: however busy the machine is."""
        before = now()

        def since():
            return [seconds - was for seconds, was in zip(now(), before)]

        self.eventually(lambda: sum(since()) >= enough, 180)
        return since()

    def ticks(self, process):
        """CPU time that the kernel has in its books for a process, in seconds."""
        with open(f"/proc/{process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
