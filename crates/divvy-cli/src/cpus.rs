//! Lists of CPUs on the command line, and who can keep a client to some of them.

use divvy_linux::CpuMask;

use crate::{Code, Failure};

/// Back ends beneath which the kernel divides each CPU among those that may use it. The others hold whoever has had enough
/// of all CPUs together, and two clients that are kept to one CPU would be released at once, as if each had its own.
const BY_KERNEL: [&str; 2] = ["cgroup", "kernel"];

/// Who divides CPUs, and is asked to keep a client to some of them: in words.
#[derive(Debug)]
pub(crate) struct Divider {
    name: &'static str,
    /// How it is told its back end.
    start: &'static str,
    /// What divides some CPUs alone, before the list of them.
    alone: &'static str,
}

pub(crate) const DIVVYD: Divider =
    Divider { name: "divvyd", start: "start it with", alone: "divvyd --user --background --cpus" };
pub(crate) const SHARE: Divider = Divider { name: "this run", start: "give", alone: "divvy share --cpus" };

/// `0,2-3` as a set of CPUs.
pub(crate) fn parse(list: &str) -> Result<CpuMask, Failure> {
    list.parse().map_err(|e| {
        let text = format!("--cpus {list}: {e}; write numbers and ranges, as in 0,2-3");
        Failure::new(Code::Usage, text)
    })
}

/// `0,2-3`, or `build=0,2-3` for one of several, whose name comes with it.
pub(crate) fn parse_named(text: &str) -> Result<(Option<&str>, CpuMask), Failure> {
    let Some((name, list)) = text.rsplit_once('=') else { return Ok((None, parse(text)?)) };
    let name = name.trim();
    if name.is_empty() {
        let text = format!("--cpus {text}: the name is empty; write NAME=0,2-3, or 0,2-3 for all");
        return Err(Failure::new(Code::Usage, text));
    }
    Ok((Some(name), parse(list)?))
}

/// The same of a client that may have some already: `all` for no bound, which is the empty set.
pub(crate) fn parse_change(list: &str) -> Result<CpuMask, Failure> {
    if list == "all" { Ok(CpuMask::default()) } else { parse(list) }
}

/// Whether a client of one that divides the CPUs `all` by the back end `used` can be kept to `cpus`. `what` was asked for.
///
/// # Errors
/// [`Failure`] with [`Code::Usage`], and what would help.
pub(crate) fn check(
    what: &str,
    cpus: &CpuMask,
    by: &Divider,
    all: &[u32],
    used: &str,
) -> Result<(), Failure> {
    let Divider { name, start, alone } = by;
    let refuse = |text: String| Err(Failure::new(Code::Usage, format!("{what}: {text}")));
    let divided: CpuMask = all.iter().copied().collect();
    if let Some(cpu) = cpus.iter().find(|&cpu| !divided.contains(cpu)) {
        return refuse(format!("{name} does not divide CPU {cpu}; name some of {divided}"));
    }
    if *cpus != divided && !BY_KERNEL.contains(&used) {
        return refuse(format!(
            "{name} divides the CPUs {divided} together, by {used}, and keeps nobody to some of them; {start} \
             --backend cgroup where `divvy doctor` says that it can be had, or for these alone: {alone} {cpus}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        let cpus = |list| parse(list).map(|mask| mask.iter().collect::<Vec<_>>()).map_err(|f| f.text);
        assert_eq!(cpus("0,2-3"), Ok(vec![0, 2, 3]));
        assert_eq!(cpus("1"), Ok(vec![1]));
        let fix = "; write numbers and ranges, as in 0,2-3";
        assert_eq!(cpus("x"), Err(format!("--cpus x: 'x' is no CPU{fix}")));
        assert_eq!(cpus("3-2"), Err(format!("--cpus 3-2: the range 3-2 is empty{fix}")));
        assert_eq!(cpus("1,"), Err(format!("--cpus 1,: '' is no CPU{fix}")));
        assert_eq!(cpus("5000"), Err(format!("--cpus 5000: there is no CPU 5000{fix}")));
    }

    #[test]
    fn a_client_is_kept_to_some_cpus_where_the_kernel_divides() {
        let said = |used: &str, cpus: &[u32], list: &str| {
            let mask = parse(list).expect("CPUs");
            check(&format!("--cpus {list}"), &mask, &DIVVYD, cpus, used).map_err(|failure| failure.text)
        };
        for used in ["cgroup", "kernel"] {
            assert_eq!(said(used, &[0, 1, 2], "0,2"), Ok(()));
            let all = "--cpus 1-3: divvyd does not divide CPU 3; name some of 0-2".to_owned();
            assert_eq!(said(used, &[0, 1, 2], "1-3"), Err(all));
        }
        for used in ["signals", "freezer"] {
            assert_eq!(said(used, &[1], "1"), Ok(()), "there is no other");
            assert_eq!(said(used, &[0, 1], "0-1"), Ok(()), "these are all");
            let e = said(used, &[0, 1], "1").expect_err("it cannot");
            assert!(
                e.starts_with(&format!("--cpus 1: divvyd divides the CPUs 0-1 together, by {used},")),
                "{e}"
            );
            assert!(e.ends_with("divvyd --user --background --cpus 1"), "{e}");
        }
    }

    #[test]
    fn a_list_may_be_of_one_task() {
        let named = |text| parse_named(text).map(|(name, mask)| (name, mask.to_string())).map_err(|f| f.text);
        assert_eq!(named("0,2"), Ok((None, "0,2".to_owned())));
        assert_eq!(named("a=b=1-2"), Ok((Some("a=b"), "1-2".to_owned())));
        assert_eq!(
            named("a="),
            Err("--cpus : '' is no CPU; write numbers and ranges, as in 0,2-3".to_owned())
        );
        let e = "--cpus =1: the name is empty; write NAME=0,2-3, or 0,2-3 for all".to_owned();
        assert_eq!(named("=1"), Err(e));
    }
}
