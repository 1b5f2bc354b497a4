import multiprocessing
import os
import subprocess
import time
import unittest

import divvy
from live import MAX_ERROR, SPIN, Live


def compute(seconds):
    while time.process_time() < seconds:
        pass


class Shares(Live):
    def test_processes_get_their_shares_by_the_kernels_books(self):
        a, b = self.spin(), self.spin()
        with divvy.share({"a": a, "b": (divvy.Pid(b.pid), 3)}) as shares:
            used = self.used(lambda: [self.ticks(a), self.ticks(b)])
            self.assertAlmostEqual(used[1] / sum(used), 0.75, delta=MAX_ERROR)
            names = [info.name for info in divvy.Client().clients()]
            self.assertEqual(names, ["a", "b"])
        self.assertEqual(divvy.Client(start=False).clients(), [])
        self.assertIsNone(a.poll(), "it runs on")
        report = shares.report()
        self.assertEqual([row.name for row in report], ["a", "b"])
        self.assertAlmostEqual(report["b"].target, 0.75)
        self.assertAlmostEqual(report["b"].achieved, 0.75, delta=MAX_ERROR)
        self.assertEqual(report.to_dict()["rows"][1]["share"], 3)
        self.assertIn("achieved %", str(report))
        html = report._repr_html_()
        self.assertTrue(html.startswith("<table>") and html.count("<tr>") == 3, html)

    def test_a_limit_and_what_changes(self):
        with divvy.share({}) as shares:
            process = shares.run("low", SPIN, limit="20%")
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            time.sleep(0.2)
            before, begin = self.ticks(process), time.monotonic()
            time.sleep(2)
            part = (self.ticks(process) - before) / (time.monotonic() - begin)
            self.assertTrue(0.01 < part < 0.2 + MAX_ERROR, part)
            self.assertEqual(divvy.Client().client("low").limit_ppm, 200_000)
            shares.set("low", share=5, limit=None)
            info = divvy.Client().client("low")
            self.assertEqual((info.share, info.limit_ppm), (5, None))
            shares.pause("low")
            self.assertEqual(divvy.Client().client("low").state, "paused")
            before = self.ticks(process)
            time.sleep(0.3)
            self.assertAlmostEqual(self.ticks(process), before, delta=0.03)
            shares.resume("low")

    def test_shares_wait_for_their_processes(self):
        with divvy.share({"a": 3, "b": 1, "c": (None, 2, "50%")}) as shares:
            self.assertEqual(divvy.Client().clients(), [], "a number is nobody's pid")
            a, b = self.started(shares.run("a", SPIN)), self.spin()
            shares.attach("b", b)
            used = self.used(lambda: [self.ticks(a), self.ticks(b)])
            self.assertAlmostEqual(used[0] / sum(used), 0.75, delta=MAX_ERROR)
            with self.assertRaises(ValueError) as raised:
                shares.pause("c")
            self.assertIn("no process yet", str(raised.exception))
            shares.set("c", share=5)
            self.started(shares.run("c", SPIN))
            rows = [(row.name, row.share, row.limit_ppm) for row in shares.report()]
            self.assertEqual(rows, [("a", 3, None), ("b", 1, None), ("c", 5, 500_000)])
            with self.assertRaises(ValueError) as raised:
                shares.run("a", SPIN)
            self.assertIn("has a process already", str(raised.exception))
        with divvy.share({"a": 3}) as shares:
            self.started(shares.run("a", SPIN, share=7))
            self.assertEqual(shares.report()["a"].share, 7, "what is said later counts")

    def test_a_share_that_no_process_came_for_is_an_error(self):
        a, stranger = self.spin(), 4711
        with self.assertRaises(ValueError) as raised:
            with divvy.share({"a": a, "b": stranger}) as shares:
                self.assertEqual([row.name for row in shares.report()], ["a"])
        self.assertIn("no process came for it", str(raised.exception))
        self.assertIn("divvy.Pid(4711)", str(raised.exception))
        self.assertEqual(divvy.Client().clients(), [], "and all are let go")
        with self.assertRaises(KeyError, msg="the block's own error is not hidden"):
            with divvy.share({"b": 3}):
                raise KeyError("b")

    def test_a_group_has_its_share_together(self):
        a, b, beside = self.spin(), self.spin(), self.spin()
        client = divvy.Client()
        with divvy.share({"a": a, "b": (b, 3)}, group=("build/parts", 2)) as shares, divvy.share({"beside": beside}):
            self.assertEqual([(g.name, g.share, g.clients) for g in client.groups()], [("build", 1, 2), ("build/parts", 2, 2)])
            self.assertEqual([info.group for info in client.clients()], ["build/parts", "build/parts", None])
            self.assertEqual(client.change_group("build", share=3).share, 3)
            used = self.used(lambda: [self.ticks(process) for process in (a, b, beside)])
            # 3 of 4 for the group, and 1 and 3 of 4 of that for its two.
            for part, due in zip(used, (3 / 16, 9 / 16, 4 / 16)):
                self.assertAlmostEqual(part / sum(used), due, delta=MAX_ERROR, msg=str(used))
            self.assertAlmostEqual(shares.report()["b"].target, 0.75)
            self.assertEqual(shares.set_group(5).share, 5)
            late = self.spin()
            shares.attach("late", late)
            self.assertEqual(client.groups()[1].share, 5, "who comes later changes nothing")
            self.assertTrue(client.change_group("build", paused=True).paused)
            self.assertEqual({info.state for info in client.clients()[:2]}, {"paused"})
            self.assertEqual(client.detach_group("build").clients, 3)
        self.assertEqual((client.groups(), client.clients()), ([], []))

    def test_a_group_that_is_none_is_refused(self):
        a = self.spin()
        for wrong, kind, text in [
            (("build", "3"), TypeError, "is no group"),
            (3, TypeError, "is no group"),
            (("build", 0), divvy.Refused, "share"),
            ("a/b/c/d/e", divvy.Refused, "group"),
        ]:
            with self.assertRaises(kind) as raised:
                divvy.Client().attach(a, group=wrong)
            self.assertIn(text, str(raised.exception))
        with divvy.share({"a": a}) as shares, self.assertRaises(ValueError):
            shares.set_group(2)
        with self.assertRaises(divvy.Refused) as raised:
            divvy.Client().change_group("nobody-is-called-so", share=2)
        self.assertEqual(raised.exception.code, "no-such-client")

    def test_a_process_of_multiprocessing_that_ends_is_in_the_report(self):
        process = multiprocessing.get_context("fork").Process(target=compute, args=(0.3,))
        process.start()
        with divvy.share({"short": process, "long": self.spin()}) as shares:
            process.join()
            time.sleep(0.3)
            report = shares.report()
        self.assertEqual(report["short"].state, "left")
        self.assertGreater(report["short"].cpu_seconds, 0.1)
        self.assertAlmostEqual(report["short"].target, 0.5, delta=0.01)

    def test_what_has_ended_before_it_is_divided_is_in_the_report(self):
        process = multiprocessing.get_context("fork").Process(target=compute, args=(0.0,))
        process.start()
        over = subprocess.Popen(["true"])
        for pid in process.pid, over.pid:
            # Ended, and nobody has waited for it.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with divvy.share({"short": (process, 2, "50%"), "over": 1, "long": self.spin()}) as shares:
            shares.attach("over", over)
            for refused in (lambda: shares.set("over", share=3), lambda: shares.pause("short")):
                with self.assertRaisesRegex(ValueError, "has ended"):
                    refused()
            with self.assertRaisesRegex(ValueError, "has a process already"):
                shares.attach("over", over)
            report = shares.report()
        self.assertEqual([row.name for row in report], ["long", "short", "over"])
        self.assertEqual((report["short"].state, report["short"].share, report["short"].limit_ppm), ("left", 2, 500_000))
        over_row = report["over"]
        self.assertEqual((over_row.state, over_row.limit_ppm, report["long"].target), ("left", None, 1.0))
        self.assertEqual(over.wait(), 0)
        process.join()
        # Whoever names a process by its number means one that is there.
        gone = subprocess.Popen(["true"])
        gone.wait()
        with self.assertRaises(divvy.Refused), divvy.share({"a": divvy.Pid(gone.pid)}):
            self.fail("nothing to divide")

    def test_what_cannot_be_is_refused_and_nothing_is_left(self):
        a = self.spin()
        for wrong, kind, text in [
            ({"a": a, "b": divvy.Pid(4194305)}, divvy.Refused, "there is no process 4194305"),
            ({"a": a, "b": (a, 0)}, divvy.Refused, "a share is a whole number"),
            ({"a": a, "b": "bob"}, ValueError, "is no selector"),
            ({"a": a, "b": None}, TypeError, "is no process"),
            ({"a": a, "b": a.pid}, TypeError, f"write divvy.Pid({a.pid}) for the process, (None, {a.pid}) for the share"),
            ({"a": a, "b": os.getpid()}, TypeError, f"write divvy.Pid({os.getpid()}) for the process"),
            ({"a": a, "b": (4711, 3)}, TypeError, "write divvy.Pid(4711) for a process"),
            ({"a": a, "b": (3, "50%")}, TypeError, "(None, 3, '50%')"),
            ({"a": a, "b": 0}, ValueError, "0 is no share"),
            ({"a": a, "b": -3}, ValueError, "-3 is no share"),
            ({"a": a, "b": True}, TypeError, "is no process"),
            ({"a": a, "b": (None, 2.5)}, ValueError, "2.5 is no share"),
            ({"a": a, "b": (None, 3, "0.1%")}, ValueError, "a limit is 1%"),
            ({"a": a, "b": (a, 3, None, 4)}, TypeError, "give a process, its share and its limit"),
            ({"a": a, "/": (a, 2)}, divvy.Refused, "tree:"),
            ({"a": (a, 1, "0.1%")}, ValueError, "a limit is 1%"),
        ]:
            with self.assertRaises(kind) as raised:
                with divvy.share(wrong):
                    self.fail("nothing to divide")
            self.assertIn(text, str(raised.exception))
            self.assertEqual(divvy.Client().clients(), [], wrong)
        with self.assertRaises(divvy.Refused) as raised:
            divvy.Client().request("POST", "/v1/clients", {"share": 1, "selector": f"tree:{a.pid}", "limit_ppm": 5})
        self.assertEqual(raised.exception.code, "bad-request")
        self.assertIn("at least 1%", str(raised.exception))

    def test_the_client_knows_the_rest_of_the_api(self):
        client = divvy.Client()
        self.assertEqual(len(client.status()["cpus"]), 1)
        info = client.run(["sleep", "100"], 2, name="sleeper")
        self.assertEqual((info.name, info.share), ("sleeper", 2))
        self.assertTrue(client.explain(client.status()["pid"]))
        self.assertTrue(client.doctor())
        happened = client.events()["events"]
        self.assertTrue(any(event["client"] == info.id for event in happened))
        self.assertEqual(client.detach("sleeper").state, "left")
        with self.assertRaises(divvy.Refused) as raised:
            client.client("nobody-is-called-so")
        self.assertEqual(raised.exception.code, "no-such-client")


if __name__ == "__main__":
    unittest.main()
