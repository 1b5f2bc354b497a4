//! CPUs that a client is kept to: who can do that, and what they are in JSON: `"0,2-3"`, and `"all"` for the empty set, which means
//! that there is no bound.

use std::fmt;

use divvy_linux::CpuMask;
use serde::{Deserialize as _, Deserializer, Serializer, de};

const ALL: &str = "all";
/// Back ends beneath which the kernel divides each CPU among those that may use it. The others hold whoever has had enough
/// of all CPUs together, and two clients that are kept to one CPU would be released at once, as if each had its own.
const BY_KERNEL: [&str; 2] = ["cgroup", "kernel"];

/// Who is asked to keep a client to some of the CPUs that are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// divvyd, of processes that run already.
    Divvyd,
    /// Whoever starts a client of divvyd, and can keep it to all CPUs that are divided by itself.
    Starter,
    /// A `divvy share`, which is the starter of all of its tasks.
    Run,
}

/// Why a client is not kept to its CPUs, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// What stands in the way.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.fix)
    }
}

/// Whether a client can be kept to `cpus` where `divided` are divided by the back end `used`.
///
/// # Errors
/// [`NotKept`].
pub fn check(cpus: &CpuMask, divided: &CpuMask, used: &str, by: Keeper) -> Result<(), NotKept> {
    let name = if by == Keeper::Run { "this run" } else { "divvyd" };
    check_are_divided(cpus, divided, name)?;
    if BY_KERNEL.contains(&used) {
        return Ok(());
    }
    let kernel = "--backend cgroup where `divvy doctor` says that it can be had";
    let these = if divided.iter().count() == 1 { "CPU" } else { "CPUs" };
    match (by, cpus == divided) {
        (Keeper::Starter | Keeper::Run, true) => Ok(()),
        // They are divided alone, as far as that goes: a divvyd does not move what runs already.
        (Keeper::Divvyd, true) => Err(NotKept {
            what: format!(
                "divvyd divides {these} {divided}, by {used}, and by that does not move what runs already to them"
            ),
            fix: format!("`taskset -a -c -p {cpus} PID` does; or start divvyd anew with {kernel}"),
        }),
        (_, false) => {
            let what = format!(
                "{name} divides the CPUs {divided} together, by {used}, and keeps nobody to some of them"
            );
            let fix = match by {
                Keeper::Run => format!("give {kernel}, or for these alone: divvy share --cpus {cpus}"),
                Keeper::Divvyd | Keeper::Starter => {
                    format!("start it anew with {kernel}, or with --cpus {cpus} to divide these alone")
                }
            };
            Err(NotKept { what, fix })
        }
    }
}

/// Why `used` keeps nobody to some CPUs on this machine, though it does so elsewhere.
#[must_use]
pub fn not_kept_here(used: &str) -> NotKept {
    NotKept {
        what: format!("divvyd, by {used}, has no controller cpuset here to keep anybody to some CPUs"),
        fix: "`divvy doctor` says what is missing".to_owned(),
    }
}

/// Whether all of `cpus` are among those that `name` divides.
///
/// # Errors
/// [`NotKept`].
pub fn check_are_divided(cpus: &CpuMask, divided: &CpuMask, name: &str) -> Result<(), NotKept> {
    match cpus.iter().find(|&cpu| !divided.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => Err(NotKept {
            what: format!("{name} does not divide CPU {cpu}"),
            fix: format!("name some of {divided}"),
        }),
    }
}

pub(crate) fn serialize<S: Serializer>(cpus: &Option<CpuMask>, to: S) -> Result<S::Ok, S::Error> {
    match cpus {
        Some(cpus) if cpus.is_empty() => to.serialize_str(ALL),
        Some(cpus) => to.collect_str(cpus),
        None => to.serialize_none(),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CpuMask>, D::Error> {
    match String::deserialize(from)?.as_str() {
        ALL => Ok(Some(CpuMask::default())),
        list => list.parse().map(Some).map_err(|e| {
            de::Error::custom(format!("cpus: {e}; write numbers and ranges, as in 0,2-3, or {ALL}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Bounds;

    #[test]
    fn a_client_is_kept_to_some_cpus_where_the_kernel_divides() {
        let said = |used: &str, divided: &str, cpus: &str, by| {
            check(&cpus.parse().unwrap(), &divided.parse().unwrap(), used, by).map_err(|e| e.to_string())
        };
        let all = [Keeper::Divvyd, Keeper::Starter, Keeper::Run];
        for used in ["cgroup", "kernel"] {
            for by in all {
                assert_eq!(said(used, "0-2", "0,2", by), Ok(()));
            }
            let other = Err("divvyd does not divide CPU 3; name some of 0-2".to_owned());
            assert_eq!(said(used, "0-2", "1-3", Keeper::Divvyd), other);
        }
        for used in ["signals", "freezer"] {
            for by in [Keeper::Starter, Keeper::Run] {
                assert_eq!(said(used, "1", "1", by), Ok(()), "there is no other");
                assert_eq!(said(used, "0-1", "0-1", by), Ok(()), "these are all");
            }
            let e = said(used, "0-1", "1", Keeper::Divvyd).unwrap_err();
            assert!(e.starts_with(&format!("divvyd divides the CPUs 0-1 together, by {used},")), "{e}");
            assert!(e.ends_with(" or with --cpus 1 to divide these alone"), "{e}");
            assert_eq!(said(used, "0-1", "1", Keeper::Starter), Err(e));
            let e = said(used, "0-1", "1", Keeper::Run).unwrap_err();
            assert!(e.starts_with("this run divides ") && e.ends_with(": divvy share --cpus 1"), "{e}");
            // Nobody is sent back to what runs.
            let e = said(used, "1", "1", Keeper::Divvyd).unwrap_err();
            assert!(
                e.starts_with(&format!("divvyd divides CPU 1, by {used}, and by that does not move")),
                "{e}"
            );
            assert!(e.contains("`taskset -a -c -p 1 PID`") && !e.contains("--cpus 1"), "{e}");
        }
    }

    #[test]
    fn cpus_are_written_as_lists() {
        for (text, cpus) in [("0,2-3", vec![0, 2, 3]), ("all", vec![])] {
            let json = format!("{{\"cpus\":\"{text}\"}}");
            let bounds: Bounds = serde_json::from_str(&json).expect("CPUs");
            assert_eq!(bounds.cpus.expect("given").iter().collect::<Vec<_>>(), cpus);
            assert_eq!(serde_json::to_string(&bounds).expect("JSON"), json);
        }
        let e = serde_json::from_str::<Bounds>(r#"{"cpus":"2-1"}"#).expect_err("no range").to_string();
        assert!(e.starts_with("cpus: the range 2-1 is empty; write numbers and ranges"), "{e}");
        assert!(serde_json::from_str::<Bounds>(r#"{"cpus":null}"#).is_err());
    }

    #[test]
    fn all_takes_them_back() {
        let to =
            |text: &str| serde_json::from_str::<Bounds>(&format!("{{\"cpus\":\"{text}\"}}")).expect("CPUs");
        let kept = Bounds::default().changed_by(to("1"));
        assert_eq!(kept, to("1"));
        assert_eq!(kept.changed_by(Bounds::default()), kept);
        assert!(kept.changed_by(to("all")).is_empty());
    }
}
