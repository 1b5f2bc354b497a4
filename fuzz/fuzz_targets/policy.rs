//! The administrator's policy: whatever is taken can be written down, and is the same then.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert_ne!(divvy_daemon::fuzzing::is_policy_kept(text), Some(false));
});
