"""Every example of the manual, of the recipes and of README.md is a program that runs."""

import os
import re
import subprocess
import sys
import unittest

from live import Live

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
# And how many examples there are at least.
PAGES = {"docs/python.md": 4, "docs/recipes.md": 1, "python/README.md": 1}
# The project that the last one makes.
MAKEFILE = "all check:\n\t@true\n"


class Examples(Live):
    def test_examples_run(self):
        with open(os.path.join(self.dir, "Makefile"), "w") as file:
            file.write(MAKEFILE)
        for name, least in PAGES.items():
            with open(os.path.join(ROOT, name)) as page:
                examples = re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)
            self.assertGreaterEqual(len(examples), least, name)
            for number, example in enumerate(examples):
                path = os.path.join(self.dir, f"example_{number}.py")
                with open(path, "w") as file:
                    file.write(example)
                done = subprocess.run(
                    [sys.executable, path],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    start_new_session=True,
                    cwd=self.dir,
                )
                self.assertEqual(done.returncode, 0, f"{example}\n{done.stdout}{done.stderr}")
                self.assertEqual(done.stderr, "", example)


if __name__ == "__main__":
    unittest.main()
