//! `--backend`: by what clients are held, or weighed.

use clap::ValueEnum;
use divvy_engine::policies::{GateSpec, KERNEL};
use divvy_linux::CpuMask;
use divvy_linux::cgroup::{
    Asked, Backend, Chosen, Lifetime, Means, Refused, Survey, Wish, choose, choose_here,
};

use crate::daemon::{Failure, Overrides};
use crate::kernel::{KERNEL_BACKEND, PATIENCE, Plan};
use divvy_api::types::BackendInfo;

/// The name of [`BackendArg::Auto`].
pub(crate) const AUTO_BACKEND: &str = "auto";
/// So long `auto` waits for a divvy-scx that lets go, in tenths of a second.
const AUTO_PATIENCE: u32 = 20;

/// How the system's divvyd gets a cgroup of its own.
const SYSTEM_FIX: &str = "have systemd start divvyd, with Delegate=yes in its unit as divvyd.service has it";

/// What `--backend` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    /// SIGSTOP and SIGCONT: needs nothing, and leaves everybody in their cgroups
    #[default]
    Signals,
    /// cgroup.freeze: parents, terminals and handlers do not see it
    Freezer,
    /// The kernel's CPU weights: nobody is held
    Cgroup,
    /// cgroup, and divvy-scx beside it: --policy (stride, if not given) as the kernel's own scheduler (of --system, Linux 6.13)
    Kernel,
    /// kernel (of --system, where divvy-scx is there, until a limit of CPU time is asked for), else cgroup, else freezer, else signals
    Auto,
}

impl BackendArg {
    const fn asked(self) -> Asked {
        match self {
            Self::Signals => Asked::Signals,
            Self::Freezer => Asked::Freezer,
            Self::Cgroup | Self::Kernel => Asked::Cgroup,
            Self::Auto => Asked::Auto,
        }
    }
}

/// Whose divvyd it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A user's, for whom systemd is asked for a cgroup where that would serve: this process is in it then.
    User,
    /// The system's.
    System,
}

/// The back end that was asked for, or the best that there is. Where the kernel is to divide, `spec` becomes the policy
/// that holds nobody. `file` is the policy that the administrator's file names, if that is not the default.
pub(crate) fn pick(
    overrides: &Overrides,
    whose: Whose,
    file: Option<&str>,
    spec: &mut GateSpec,
) -> Result<(Means, BackendInfo), Failure> {
    let policy = overrides.policy.as_deref().or(file);
    if policy.is_some_and(|policy| policy.split(':').next() == Some(KERNEL)) {
        let text =
            format!("--policy {KERNEL}: holds nobody, and comes with --backend cgroup; give that instead");
        return Err(Failure::usage(text));
    }
    choose_by(overrides.backend.unwrap_or_default(), policy, spec, |wish| match whose {
        Whose::User => choose_here(wish, Lifetime::Daemon),
        Whose::System => choose(wish, &Survey::new().with_fix(SYSTEM_FIX)),
    })
}

fn choose_by(
    arg: BackendArg,
    policy: Option<&str>,
    spec: &mut GateSpec,
    choose: impl FnOnce(&Wish<'_>) -> Result<Chosen, Refused>,
) -> Result<(Means, BackendInfo), Failure> {
    // Whoever comes later is moved as they come; shares are not known yet.
    let wish = Wish { asked: arg.asked(), policy, attached: None, shares: &[], limited: false };
    let chosen = choose(&wish).map_err(|refused| match refused {
        Refused::Usage(text) => Failure::usage(text),
        Refused::Machine(text) => Failure::system(format!("{text}; --backend signals needs no cgroup")),
    })?;
    // Memory and disks too: a market has rights to them, and a client of anybody's may have a bound.
    let means = match chosen.means {
        Means::Weights(ground, _) => Means::Rights(ground),
        means => means,
    };
    if chosen.backend == Backend::Cgroup {
        KERNEL.clone_into(&mut spec.policy);
    }
    let asked = arg.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let used = chosen.backend.name().to_owned();
    Ok((means, BackendInfo { asked, used, why: chosen.why, ..BackendInfo::default() }))
}

/// Makes a policy the kernel's scheduler beside its weights, where that was asked for, or `auto` can have it: what is to be started then,
/// and `info` says so.
pub(crate) fn plan_kernel(
    arg: BackendArg,
    policy: Option<&str>,
    cpus: Option<&CpuMask>,
    means: &Means,
    info: &mut BackendInfo,
) -> Result<Option<Plan>, Failure> {
    let Means::Rights(ground) = means else { return Ok(None) };
    let plan = match arg {
        BackendArg::Kernel => {
            let plan = Plan::new(ground, policy, PATIENCE)
                .map_err(|why| Failure::system(format!("--backend {KERNEL_BACKEND}: {why}")))?;
            // Of the default nobody doubts the parameters, and loading its programs once more takes a moment.
            if policy.is_some() {
                plan.check()?;
            }
            plan
        }
        // Whether this kernel takes its programs is seen now: nobody asked for it by name.
        BackendArg::Auto => {
            let planned = match cpus {
                Some(cpus) => Err(format!("it has all CPUs, and {cpus} are to be divided")),
                None => Plan::new(ground, None, AUTO_PATIENCE),
            };
            match planned.and_then(|plan| plan.check().map(|()| plan).map_err(|failure| failure.text)) {
                Ok(plan) => plan,
                Err(why) => {
                    let why = why.trim_start_matches("--backend kernel: ");
                    let before = if info.why.is_empty() { String::new() } else { format!("{}; ", info.why) };
                    info.why = format!("{before}not {KERNEL_BACKEND}: {why}");
                    return Ok(None);
                }
            }
        }
        _ => return Ok(None),
    };
    KERNEL_BACKEND.clone_into(&mut info.used);
    Ok(Some(plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey() -> Survey {
        let no = || Err("not ours; the fix".to_owned());
        Survey { freezer: no(), weights: no() }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_its_fix() {
        let of = |arg, policy| {
            let mut spec = GateSpec::default();
            let picked = choose_by(arg, policy, &mut spec, |wish| choose(wish, &survey()));
            picked.map(|(_, info)| (info.used, info.why, spec.policy)).map_err(|f| (f.code, f.text))
        };
        for (arg, name) in [(BackendArg::Freezer, "freezer"), (BackendArg::Cgroup, "cgroup")] {
            assert_eq!(
                of(arg, None),
                Err((5, format!("--backend {name}: not ours; the fix; --backend signals needs no cgroup")))
            );
        }
        let (used, why, policy) = of(BackendArg::Auto, None).expect("auto is never refused");
        assert_eq!((used.as_str(), why.as_str(), policy.as_str()), ("signals", "not ours; the fix", "exact"));
        let (code, text) = of(BackendArg::Cgroup, Some("las")).expect_err("a policy and weights");
        assert!(code == 2 && text.contains("--policy las decides who runs"), "{code} {text}");
        let args = Overrides { policy: Some("kernel".to_owned()), ..Overrides::default() };
        let refused =
            pick(&args, Whose::User, None, &mut GateSpec::default()).expect_err("no policy of its own");
        assert!(refused.text.contains("comes with --backend cgroup"), "{}", refused.text);
    }

    #[test]
    fn nothing_but_weights_goes_with_the_kernels_scheduler() {
        let mut info = BackendInfo { used: "signals".to_owned(), ..BackendInfo::default() };
        let planned =
            plan_kernel(BackendArg::Auto, None, None, &Means::Signals, &mut info).map_err(|f| f.text);
        assert_eq!((planned, info.used.as_str()), (Ok(None), "signals"));
        // cpu.shares of version 1: auto stays with them, as with any, by name it is refused.
        let own = || "/own".into();
        let (knob, enable) = (divvy_linux::cgroup::Knob::Shares, divvy_linux::cgroup::Enable::Nothing);
        let ground = divvy_linux::cgroup::Ground {
            dir: own(),
            home: own(),
            mount: "/".into(),
            shown: "/".into(),
            hierarchy: divvy_linux::cgroup::Hierarchy::Cpu,
            knob,
            enable,
        };
        let means = Means::Rights(ground);
        let mut info = BackendInfo { used: "cgroup".to_owned(), why: "asked".to_owned(), ..info };
        let planned = plan_kernel(BackendArg::Auto, None, None, &means, &mut info).map_err(|f| f.text);
        assert_eq!((planned, info.used.as_str()), (Ok(None), "cgroup"));
        assert_eq!(info.why, "asked; not kernel: it needs cgroup v2 with its cpu controller");
        let cpus = "0".parse().expect("a list");
        info.why.clear();
        let planned = plan_kernel(BackendArg::Auto, None, Some(&cpus), &means, &mut info).map_err(|f| f.text);
        assert_eq!(
            (planned, info.why.as_str()),
            (Ok(None), "not kernel: it has all CPUs, and 0 are to be divided")
        );
        let refused =
            plan_kernel(BackendArg::Kernel, Some("vtrr"), None, &means, &mut info).expect_err("by name");
        assert_eq!(
            (refused.code, refused.text.as_str()),
            (5, "--backend kernel: it needs cgroup v2 with its cpu controller")
        );
    }
}
