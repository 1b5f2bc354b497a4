"""Every example of the manual is a program that runs."""

import os
import re
import subprocess
import sys
import unittest

from live import Live

HERE = os.path.dirname(os.path.abspath(__file__))
MANUAL = os.path.join(HERE, "..", "..", "docs", "python.md")


class Examples(Live):
    def test_examples_run(self):
        with open(MANUAL) as manual:
            examples = re.findall(r"```python\n(.*?)```", manual.read(), re.DOTALL)
        self.assertGreaterEqual(len(examples), 4)
        for number, example in enumerate(examples):
            path = os.path.join(self.dir, f"example_{number}.py")
            with open(path, "w") as file:
                file.write(example)
            done = subprocess.run(
                [sys.executable, path], capture_output=True, text=True, timeout=60, start_new_session=True
            )
            self.assertEqual(done.returncode, 0, f"{example}\n{done.stdout}{done.stderr}")
            self.assertEqual(done.stderr, "", example)


if __name__ == "__main__":
    unittest.main()
