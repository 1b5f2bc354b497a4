//! Lists of CPUs on the command line, and who can keep a client to some of them.

use divvy_linux::CpuMask;

use crate::{Code, Failure};

/// Back ends beneath which the kernel divides each CPU among those that may use it. The others hold whoever has had enough
/// of all CPUs together, and two clients that are kept to one CPU would be released at once, as if each had its own.
const BY_KERNEL: [&str; 2] = ["cgroup", "kernel"];

/// `0,2-3` as a set of CPUs.
pub(crate) fn parse(list: &str) -> Result<CpuMask, Failure> {
    list.parse().map_err(|e| {
        let text = format!("--cpus {list}: {e}; write numbers and ranges, as in 0,2-3");
        Failure::new(Code::Usage, text)
    })
}

/// The same of a client that may have some already: `all` for no bound, which is the empty set.
pub(crate) fn parse_change(list: &str) -> Result<CpuMask, Failure> {
    if list == "all" { Ok(CpuMask::default()) } else { parse(list) }
}

/// Whether a client of a divvyd that divides the CPUs `all` by the back end `used` can be kept to `cpus`, which were written as
/// `list`.
///
/// # Errors
/// [`Failure`] with [`Code::Usage`], and what would help.
pub(crate) fn check(cpus: &CpuMask, list: &str, all: &[u32], used: &str) -> Result<(), Failure> {
    let refuse = |text: String| Err(Failure::new(Code::Usage, format!("--cpus {list}: {text}")));
    let divided: CpuMask = all.iter().copied().collect();
    if let Some(cpu) = cpus.iter().find(|&cpu| !divided.contains(cpu)) {
        return refuse(format!("divvyd does not divide CPU {cpu}; name some of {divided}"));
    }
    if *cpus != divided && !BY_KERNEL.contains(&used) {
        return refuse(format!(
            "divvyd divides the CPUs {divided} together, by {used}, and keeps nobody to some of them; start it with \
             --backend cgroup where `divvy doctor` says that it can be had, or for these alone: divvyd --user --background \
             --cpus {list}"
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
            check(&parse(list).expect("CPUs"), list, cpus, used).map_err(|failure| failure.text)
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
}
