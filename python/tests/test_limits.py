import os
import unittest

from divvy._limit import limit_ppm, shown


class Limits(unittest.TestCase):
    def test_limits_are_read(self):
        for limit, ppm in [
            ("50%", 500_000),
            (0.5, 500_000),
            ("0.5", 500_000),
            (1, 1_000_000),
            ("12.5 %", 125_000),
            ("400%", 4_000_000),
            (None, 0),
            ("none", 0),
        ]:
            self.assertEqual(limit_ppm(limit), ppm, limit)
        self.assertEqual([shown(ppm) for ppm in (500_000, 125_000, None)], ["50%", "12.5%", "-"])

    def test_what_is_wrong_is_said(self):
        for limit, text in [
            ("half", "is no limit; write '50%' (of one CPU), 1.5 (CPUs) or None"),
            (float("nan"), "is no limit"),
            (True, "is no limit"),
            ("0%", "a limit is 1% of one CPU to 4096 CPUs"),
            (-1, "a limit is 1% of one CPU"),
            ((os.cpu_count() or 1) + 1, "is more than the"),
        ]:
            with self.assertRaises(ValueError) as raised:
                limit_ppm(limit)
            self.assertIn(text, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
