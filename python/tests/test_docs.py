"""Every example of the manual, and of the recipes, is a program that runs."""

import os
import re
import subprocess
import sys
import unittest

from live import Live

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "..", "..", "docs")
# And how many examples there are at least.
PAGES = {"python.md": 4, "recipes.md": 1}


class Examples(Live):
    def test_examples_run(self):
        for name, least in PAGES.items():
            with open(os.path.join(DOCS, name)) as page:
                examples = re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)
            self.assertGreaterEqual(len(examples), least, name)
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
