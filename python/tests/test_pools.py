import concurrent.futures
import os
import unittest

import divvy
from live import MAX_ERROR, Live


def group(_):
    return os.getpgid(0)


def remember(value):
    os.environ["DIVVY_PY"] = value


def remembered():
    return os.environ.get("DIVVY_PY")


def compute(end):
    while not os.path.exists(end):
        pass


class Pools(Live):
    def test_two_pools_divide_by_share_whatever_their_sizes(self):
        with divvy.Pool(4, share=1, name="four") as many, divvy.ProcessPoolExecutor(2, share=3, name="two") as few:
            groups = set(many.map(group, range(8))) | set(few.map(group, range(8)))
            self.assertEqual(len(groups), 2, groups)
            self.assertNotIn(os.getpgid(0), groups)
            # Each with the process that keeps its group.
            client = divvy.Client()
            members = {"four": 5, "two": 3}
            self.eventually(lambda: {info.name: info.nr_members for info in client.clients()} == members)
            # What they used before all compute was to start.
            end = os.path.join(self.dir, "end")
            work = [few.submit(compute, end) for _ in range(2)]
            done = many.map_async(compute, [end] * 4)
            try:
                self.eventually(lambda: all(info.service_ns > 2e8 for info in client.clients()), 180)
                used = self.used(lambda: [client.client(name).service_ns / 1e9 for name in ("four", "two")])
            finally:
                # The pools wait for their work, whatever has failed.
                open(end, "w").close()
            self.assertAlmostEqual(used[1] / sum(used), 0.75, delta=MAX_ERROR)
            concurrent.futures.wait(work)
            done.get(30)
            many.set_share(2, limit="50%")
            self.assertEqual(client.client("four").limit_ppm, 500_000)
        self.assertEqual(divvy.Client(start=False).clients(), [])
        self.assertGreater(many.report()["four"].cpu_seconds, 0.3)
        self.assertGreater(few.report()["two"].cpu_seconds, 1.0)

    def test_initializers_run_and_nothing_is_left(self):
        pool = divvy.Pool(1, initializer=remember, initargs=("here",), name="one")
        keeper = pool._workers._keeper.pid
        self.assertEqual(pool.apply(remembered), "here")
        pool.close()
        pool.join()
        self.assertFalse(os.path.exists(f"/proc/{keeper}"))
        self.assertEqual(divvy.Client().clients(), [])


if __name__ == "__main__":
    unittest.main()
