//! Parallel test suites at 1:2:3: Python's own tests, two at a time, of three users.

use anyhow::Result;

use super::counted::Counted;
use super::divided::Division;
use crate::paper::Setting;
use crate::paper::real::arena::Arena;

/// Tests that compute, need no network, and take a fraction of a second; each in a process of its own.
const TESTS: &str = "test_json test_base64 test_binascii test_bisect test_heapq test_struct test_string test_textwrap test_csv \
                     test_copy test_difflib test_fractions";

const SUITES: Counted = Counted {
    part: "suites",
    title: "Three users' test suites at 1:2:3",
    text: "Each user runs some of Python's own tests over and over, two at a time, each in a process of its own (`python3 -m test -j2 \
           --forever`): hundreds of processes that come and go. A test is counted when it has passed, whichever it is.",
    unit: "tests a second",
    // `0:00:01 load avg: 1.00 [ 12] test_json passed`.
    counts: |line| line.contains("] test_") && line.contains(" passed"),
    alike: false,
    quick: &[Division::Signals],
    full: &Division::USUAL,
};

pub(super) fn suites(s: &mut Setting, arena: &Arena) -> Result<()> {
    SUITES.run(s, arena, |divided| {
        let script = |k: usize| {
            let dir = divided.memory().join(k.to_string());
            let dir = dir.display();
            format!(
                "mkdir {dir}\ncd {dir}\nexport TMPDIR={dir} HOME={dir} PYTHONDONTWRITEBYTECODE=1\n\
                 exec /usr/bin/python3 -u -m test -j2 --forever {TESTS}"
            )
        };
        Ok((0..3).map(script).collect())
    })
}
