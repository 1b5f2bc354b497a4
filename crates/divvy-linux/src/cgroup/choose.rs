//! Which back end a run gets: the one that was asked for, or the best that there is, and why.

use std::fmt;

use super::scope::{self, Lifetime};
use super::survey::{FIX, FIX_OF_DAEMON, Ground, Hierarchy, Survey};
use super::weights::{DEVIATION_MAX_PPM, DEVIATION_WARN_PPM, Weights, scale};

/// What a user can ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// SIGSTOP and SIGCONT.
    #[default]
    Signals,
    /// `cgroup.freeze`, else `freezer.state` of version 1.
    Freezer,
    /// CPU weights.
    Cgroup,
    /// SIGSTOP and SIGCONT where all compute, `cpu.idle` beside somebody who sleeps now and then.
    Idle,
    /// The best that there is.
    Auto,
    /// Nothing: `cpu.idle` where that can be had and serves, else signals alone.
    Nothing,
}

/// What a run gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// SIGSTOP and SIGCONT.
    Signals,
    /// `cgroup.freeze`, else `freezer.state` of version 1.
    Freezer,
    /// CPU weights.
    Cgroup,
    /// SIGSTOP and SIGCONT, and `cpu.idle`.
    Idle,
}

impl Backend {
    /// As `--backend` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signals => "signals",
            Self::Freezer => "freezer",
            Self::Cgroup => "cgroup",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By what a host enforces what was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// Signals to processes and process groups.
    #[default]
    Signals,
    /// Leaves that are frozen.
    Freezer(Ground),
    /// Leaves with weights. Who is held runs where nobody else wants the CPU.
    Idle {
        /// Where the leaves are.
        ground: Ground,
        /// One for each client in order, for where one CPU is divided. On several, all weigh the same.
        weights: Vec<u64>,
        /// Where leaves can be frozen, too: there, where it is another hierarchy, each client has a second one. One CPU is divided so;
        /// on several, and where there is none, signals hold.
        freezer: Option<Ground>,
    },
    /// Leaves with weights, one for each client in order. Nobody is ever held.
    Weights(Ground, Vec<u64>),
    /// Leaves with weights, memory and parts of disks that follow what clients are due
    /// ([`LinuxHost::give_dues`](crate::LinuxHost::give_dues)), as far as they can be had. Nobody is held but for a pause, which
    /// freezes a leaf.
    Rights(Ground),
}

/// What the choice depends on beside the machine.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The back end asked for.
    pub asked: Asked,
    /// The gate policy that was asked for, if any was: weights have no use for one.
    pub policy: Option<&'a str>,
    /// What runs already and is to be a client, if any is.
    pub attached: Option<&'a str>,
    /// Each client's share.
    pub shares: &'a [u64],
    /// Whether any client's CPU time is limited.
    pub limited: bool,
}

/// The back end that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub backend: Backend,
    /// How the host does it.
    pub means: Means,
    /// Why, in a few words.
    pub why: String,
    /// The weights, where they are what divides.
    pub weights: Option<Weights>,
}

impl Chosen {
    /// What the user should know of weights that are not exact.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let off = self.weights.as_ref()?.deviation_ppm;
        (off > DEVIATION_WARN_PPM).then(|| {
            format!(
                "the kernel's weights are up to {} % off these shares; signals divide them exactly",
                percent(off)
            )
        })
    }
}

/// Where nobody asks for it, no more clients than these get cgroups of their own: each takes a system call or two at the start and the
/// end, and all are gone through when who is held changes.
const USUAL_MAX: usize = 256;

/// Why a back end that was asked for by name cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Other arguments do not go with it.
    Usage(String),
    /// The machine does not have it, or does not permit it.
    Machine(String),
}

fn percent(ppm: u64) -> String {
    format!("{:.2}", ppm as f64 / 1e4)
}

fn signals(why: String) -> Chosen {
    Chosen { backend: Backend::Signals, means: Means::Signals, why, weights: None }
}

/// What speaks against weights whatever the machine has.
fn against_weights(wish: &Wish<'_>, weights: &Weights) -> Option<String> {
    if let Some(policy) = wish.policy {
        return Some(format!("--policy {policy} decides who runs, and with weights the kernel does"));
    }
    if let Some(selector) = wish.attached {
        return Some(format!("@{selector} runs already, and stays in its cgroup"));
    }
    (weights.deviation_ppm > DEVIATION_MAX_PPM).then(|| {
        format!("the kernel's weights would be {} % off these shares", percent(weights.deviation_ppm))
    })
}

fn with_weights(ground: &Ground, weights: Weights, why: String) -> Chosen {
    let means = Means::Weights(ground.clone(), weights.values.clone());
    Chosen { backend: Backend::Cgroup, means, why, weights: Some(weights) }
}

/// Where clients can have cgroups with `cpu.idle`.
fn idle_ground<'a>(wish: &Wish<'_>, survey: &'a Survey) -> Result<&'a Ground, Refused> {
    if let Some(selector) = wish.attached {
        let text = format!(
            "--backend idle: @{selector} runs already, and stays in its cgroup; use --backend signals for it"
        );
        return Err(Refused::Usage(text));
    }
    if let Some(policy) = wish.policy.filter(|_| !is_exact(wish)) {
        let text = format!(
            "--backend idle: it comes with the policy exact; leave --policy {policy} out, or use --backend signals"
        );
        return Err(Refused::Usage(text));
    }
    let ground = survey.weights.as_ref().map_err(|why| Refused::Machine(format!("--backend idle: {why}")))?;
    match ground.gives_way() {
        true => Ok(ground),
        false => Err(Refused::Machine("--backend idle: this kernel has no cpu.idle (Linux 5.15)".to_owned())),
    }
}

fn with_idle(wish: &Wish<'_>, ground: &Ground, survey: &Survey, why: String) -> Chosen {
    let weights = scale(wish.shares, ground.knob).values;
    // That of version 1 does not count what is used.
    let freezer = survey.freezer.clone().ok().filter(|ground| ground.hierarchy == Hierarchy::Unified);
    let means = Means::Idle { ground: ground.clone(), weights, freezer };
    Chosen { backend: Backend::Idle, means, why, weights: None }
}

fn with_freezer(ground: &Ground, why: String) -> Chosen {
    Chosen { backend: Backend::Freezer, means: Means::Freezer(ground.clone()), why, weights: None }
}

/// The back end for `wish` on the machine that `survey` is about.
///
/// # Errors
/// [`Refused`] where one was asked for by name that cannot be had; the text names the fix. `auto` is never refused.
pub fn choose(wish: &Wish<'_>, survey: &Survey) -> Result<Chosen, Refused> {
    let asked = || "asked for".to_owned();
    match wish.asked {
        Asked::Signals => Ok(signals(asked())),
        Asked::Freezer => {
            if let Some(selector) = wish.attached {
                let text = format!(
                    "--backend freezer: @{selector} runs already, and stays in its cgroup; use --backend signals for it"
                );
                return Err(Refused::Usage(text));
            }
            match &survey.freezer {
                Ok(ground) => Ok(with_freezer(ground, asked())),
                Err(why) => Err(Refused::Machine(format!("--backend freezer: {why}"))),
            }
        }
        Asked::Cgroup => {
            let fits = survey.weights.as_ref().map(|ground| scale(wish.shares, ground.knob));
            let weights = fits.unwrap_or_else(|_| scale(&[], super::Knob::Weight));
            if let Some(why) = against_weights(wish, &weights) {
                let fix = match wish.policy {
                    Some(_) => "leave --policy out, or use --backend signals or freezer",
                    None => "use --backend signals",
                };
                return Err(Refused::Usage(format!("--backend cgroup: {why}; {fix}")));
            }
            match &survey.weights {
                Ok(ground) => Ok(with_weights(ground, weights, asked())),
                Err(why) => Err(Refused::Machine(format!("--backend cgroup: {why}"))),
            }
        }
        Asked::Idle => idle_ground(wish, survey).map(|ground| with_idle(wish, ground, survey, asked())),
        Asked::Auto => Ok(best(wish, survey)),
        Asked::Nothing => Ok(usual(wish, survey)),
    }
}

/// The back end for `wish` on this machine, for this process and its children. Where a cgroup of ours would serve, and there is none,
/// the user's systemd is asked for one: this process is in a scope of its own then.
///
/// # Errors
/// As [`choose`].
pub fn choose_here(wish: &Wish<'_>, lifetime: Lifetime) -> Result<Chosen, Refused> {
    let survey = Survey::new();
    // To freeze takes no controller.
    let for_cpu = match wish.asked {
        Asked::Freezer => false,
        Asked::Auto => survey.freezer.is_ok(),
        _ => true,
    };
    let survey = match wants_scope(wish, &survey) {
        true => match scope::enter(for_cpu, lifetime) {
            Ok(()) => Survey::new(),
            Err(why) => survey.without_scope(&why),
        },
        false => survey,
    };
    choose(wish, &advising(survey, lifetime))
}

/// A survey whose fix is for whoever has started this process.
fn advising(survey: Survey, lifetime: Lifetime) -> Survey {
    match lifetime {
        Lifetime::Run => survey,
        Lifetime::Daemon => survey.with_fix(FIX_OF_DAEMON),
    }
}

/// Whether a cgroup of ours would change what is chosen.
fn wants_scope(wish: &Wish<'_>, survey: &Survey) -> bool {
    let lacks = match wish.asked {
        Asked::Signals => false,
        Asked::Freezer => survey.freezer.is_err(),
        Asked::Cgroup | Asked::Auto | Asked::Idle => survey.weights.is_err(),
        Asked::Nothing => survey.weights.is_err() && against_usual(wish).is_none(),
    };
    // What they are refused for does not depend on the machine.
    let by_policy = match wish.asked {
        Asked::Idle | Asked::Nothing => !is_exact(wish),
        Asked::Cgroup => wish.policy.is_some(),
        _ => false,
    };
    lacks && wish.attached.is_none() && !by_policy
}

/// What speaks against cgroups where nobody asks for them.
fn against_usual(wish: &Wish<'_>) -> Option<String> {
    match wish {
        _ if wish.shares.len() > USUAL_MAX => Some(format!("{} clients", wish.shares.len())),
        _ if wish.limited => Some("limits are kept by suspending".to_owned()),
        _ => None,
    }
}

/// Whether the policy is `exact`, asked for or not.
fn is_exact(wish: &Wish<'_>) -> bool {
    wish.policy.is_none_or(|policy| policy.split(':').next() == Some("exact"))
}

/// Signals, and where that serves also a cgroup for each client.
fn usual(wish: &Wish<'_>, survey: &Survey) -> Chosen {
    let ground = against_usual(wish).map_or(Ok(()), Err).and_then(|()| {
        idle_ground(wish, survey).map_err(|refused| match refused {
            Refused::Usage(why) | Refused::Machine(why) => {
                why.trim_start_matches("--backend idle: ").to_owned()
            }
        })
    });
    match ground {
        Ok(ground) => with_idle(wish, ground, survey, format!("{} is ours", ground.dir.display())),
        Err(why) => signals(format!("no cpu.idle: {why}")),
    }
}

fn best(wish: &Wish<'_>, survey: &Survey) -> Chosen {
    let no_weights = match &survey.weights {
        Err(why) => why.clone(),
        Ok(ground) => {
            let weights = scale(wish.shares, ground.knob);
            match against_weights(wish, &weights) {
                Some(why) => why,
                None => {
                    let why = format!(
                        "{} is ours, and the kernel divides by {}",
                        ground.dir.display(),
                        ground.knob.file()
                    );
                    return with_weights(ground, weights, why);
                }
            }
        }
    };
    if let Some(selector) = wish.attached {
        return signals(format!("@{selector} runs already, and stays in its cgroup"));
    }
    match &survey.freezer {
        // Whom it holds nobody can kill: for who asks for it by name.
        Ok(ground) if ground.hierarchy != Hierarchy::Unified => {
            signals(format!("no weights: {no_weights}; no freezer of cgroup v2"))
        }
        Ok(ground) => {
            let why = format!("{} is ours; no weights: {no_weights}", ground.dir.display());
            with_freezer(ground, why)
        }
        Err(why) if *why == no_weights => signals(why.clone()),
        Err(why) => signals(with_one_fix(format!("no weights: {no_weights}; no freezer: {why}"))),
    }
}

/// What is wrong, and once, at the end, what helps against all of it.
fn with_one_fix(text: String) -> String {
    [FIX, FIX_OF_DAEMON].into_iter().fold(text, |text, fix| {
        let fix = format!("; {fix}");
        if text.matches(&fix).count() > 1 { text.replace(&fix, "") + &fix } else { text }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Enable, Knob};
    use super::*;

    fn ground(knob: Knob) -> Ground {
        let own = || "/own".into();
        Ground {
            dir: own(),
            home: own(),
            mount: "/".into(),
            shown: "/".into(),
            hierarchy: Hierarchy::Unified,
            knob,
            enable: Enable::Nothing,
        }
    }

    fn survey(freezer: bool, weights: bool) -> Survey {
        let or = |is: bool| if is { Ok(ground(Knob::Weight)) } else { Err("not ours; the fix".to_owned()) };
        Survey { freezer: or(freezer), weights: or(weights) }
    }

    const ONE_TWO: &[u64] = &[1, 2];
    const WISH: Wish<'_> =
        Wish { asked: Asked::Auto, policy: None, attached: None, shares: ONE_TWO, limited: false };

    #[track_caller]
    fn check_auto(wish: &Wish<'_>, survey: &Survey, backend: Backend, why: &str) {
        let chosen = choose(wish, survey).expect("auto is never refused");
        assert_eq!((chosen.backend, chosen.why.as_str()), (backend, why));
    }

    #[test]
    fn auto_takes_the_best_that_there_is_and_says_why() {
        let (cgroup, freezer) = (Backend::Cgroup, Backend::Freezer);
        check_auto(&WISH, &survey(true, true), cgroup, "/own is ours, and the kernel divides by cpu.weight");
        check_auto(&WISH, &survey(true, false), freezer, "/own is ours; no weights: not ours; the fix");
        // That of version 1 is only for who asks for it by name.
        let mut old = survey(true, false);
        if let Ok(ground) = &mut old.freezer {
            ground.hierarchy = Hierarchy::Freezer;
        }
        let why = "no weights: not ours; the fix; no freezer of cgroup v2";
        check_auto(&WISH, &old, Backend::Signals, why);
        let asked = Wish { asked: Asked::Freezer, ..WISH };
        let means = choose(&asked, &old).expect("it is there").means;
        assert_eq!(Ok(means), old.freezer.map(Means::Freezer));
        check_auto(&WISH, &survey(false, false), Backend::Signals, "not ours; the fix");
        let las = Wish { policy: Some("las"), ..WISH };
        let no = "--policy las decides who runs, and with weights the kernel does";
        check_auto(&las, &survey(true, true), freezer, &format!("/own is ours; no weights: {no}"));
        let both = format!("no weights: {no}; no freezer: not ours; the fix");
        check_auto(&las, &survey(false, true), Backend::Signals, &both);
        // One fix for all that is wrong is said once.
        let mut lacks = survey(false, false);
        (lacks.weights, lacks.freezer) =
            (Err(format!("not ours; {FIX}; version 1: none")), Err(format!("none; {FIX}")));
        let why = format!("no weights: not ours; version 1: none; no freezer: none; {FIX}");
        check_auto(&WISH, &lacks, Backend::Signals, &why);
        let attached = Wish { attached: Some("user:bob"), ..WISH };
        let stays = "@user:bob runs already, and stays in its cgroup";
        check_auto(&attached, &survey(true, true), Backend::Signals, stays);
        check_auto(&attached, &survey(true, false), Backend::Signals, stays);
        let far = Wish { shares: &[1, 1_000_000], ..WISH };
        assert_eq!(choose(&far, &survey(true, true)).map(|c| c.backend), Ok(freezer));
    }

    /// Who would be refused all the same, or be held by signals, is not moved out of their session for it.
    #[test]
    fn a_scope_is_asked_for_only_where_it_would_serve() {
        let (none, frozen, all) = (survey(false, false), survey(true, false), survey(true, true));
        let many = [1; USUAL_MAX + 1];
        let asked = |asked| Wish { asked, ..WISH };
        for (wish, survey, expected) in [
            (asked(Asked::Nothing), &none, true),
            (asked(Asked::Nothing), &frozen, true),
            (asked(Asked::Nothing), &all, false),
            (asked(Asked::Signals), &none, false),
            (asked(Asked::Freezer), &none, true),
            (asked(Asked::Freezer), &frozen, false),
            (asked(Asked::Auto), &frozen, true),
            (asked(Asked::Cgroup), &none, true),
            (Wish { attached: Some("pid:7"), ..WISH }, &none, false),
            (Wish { policy: Some("las"), ..asked(Asked::Nothing) }, &none, false),
            (Wish { policy: Some("exact:slice=2ms"), ..asked(Asked::Nothing) }, &none, true),
            (Wish { policy: Some("las"), ..asked(Asked::Cgroup) }, &none, false),
            (Wish { policy: Some("las"), ..asked(Asked::Freezer) }, &none, true),
            (Wish { limited: true, ..asked(Asked::Nothing) }, &none, false),
            (Wish { limited: true, ..asked(Asked::Cgroup) }, &none, true),
            (Wish { shares: &many, ..asked(Asked::Nothing) }, &none, false),
        ] {
            assert_eq!(wants_scope(&wish, survey), expected, "{wish:?} {survey:?}");
        }
        let why = none.without_scope("systemd is away").weights.expect_err("there is none");
        assert_eq!(why, "not ours; the fix; and systemd is away");
        let lack = format!("not ours; {FIX}; version 1: none");
        let told = Survey { freezer: Err(lack.clone()), weights: Err(lack) }.without_scope("it is away");
        assert_eq!(told.freezer, Err(format!("not ours; and it is away; {FIX}; version 1: none")));
        // Who has started divvyd is not told to start `divvy share`.
        assert_eq!(advising(told.clone(), Lifetime::Run), told);
        let told = advising(told, Lifetime::Daemon).weights.expect_err("there is none");
        assert_eq!(told, format!("not ours; and it is away; {FIX_OF_DAEMON}; version 1: none"));
    }

    #[test]
    fn what_was_asked_for_by_name_is_had_or_refused() {
        let of = |asked, survey: &Survey| choose(&Wish { asked, ..WISH }, survey).map(|c| c.backend);
        assert_eq!(of(Asked::Signals, &survey(true, true)), Ok(Backend::Signals));
        assert_eq!(of(Asked::Freezer, &survey(true, false)), Ok(Backend::Freezer));
        assert_eq!(of(Asked::Cgroup, &survey(false, true)), Ok(Backend::Cgroup));
        for (asked, name) in [(Asked::Freezer, "freezer"), (Asked::Cgroup, "cgroup")] {
            let text = format!("--backend {name}: not ours; the fix");
            assert_eq!(of(asked, &survey(false, false)), Err(Refused::Machine(text)));
            let wish = Wish { asked, attached: Some("pid:7"), ..WISH };
            let refused = choose(&wish, &survey(true, true));
            let Err(Refused::Usage(text)) = refused else { panic!("{refused:?}") };
            assert!(text.contains("@pid:7 runs already") && text.contains("use --backend signals"), "{text}");
        }
        let wish = Wish { asked: Asked::Cgroup, policy: Some("exact"), ..WISH };
        let Err(Refused::Usage(text)) = choose(&wish, &survey(true, true)) else { panic!("refused") };
        assert!(text.contains("--policy exact") && text.contains("leave --policy out"), "{text}");
    }

    #[test]
    fn what_nobody_asked_for_changes_nothing_but_where_it_serves() {
        // No cgroup of these is there, so that none can have cpu.idle; what speaks against it comes first.
        let usual = Wish { asked: Asked::Nothing, ..WISH };
        let none = "no cpu.idle: this kernel has no cpu.idle (Linux 5.15)";
        check_auto(&usual, &survey(true, true), Backend::Signals, none);
        check_auto(&usual, &survey(true, false), Backend::Signals, "no cpu.idle: not ours; the fix");
        let limited = Wish { limited: true, ..usual };
        check_auto(
            &limited,
            &survey(true, true),
            Backend::Signals,
            "no cpu.idle: limits are kept by suspending",
        );
        let many = Wish { shares: &[1; USUAL_MAX + 1], ..usual };
        check_auto(&many, &survey(true, true), Backend::Signals, "no cpu.idle: 257 clients");
    }

    #[test]
    fn weights_that_are_off_are_warned_of_or_refused() {
        let of = |shares| choose(&Wish { asked: Asked::Cgroup, shares, ..WISH }, &survey(true, true));
        assert_eq!(of(&[1, 400]).expect("exact").warning(), None);
        let warned = of(&[1, 10_000]).expect("2.3 % off").warning().expect("a warning");
        assert!(warned.starts_with("the kernel's weights are up to 2.34 % off"), "{warned}");
        let Err(Refused::Usage(text)) = of(&[1, 1_000_000]) else { panic!("refused") };
        assert!(text.contains("% off these shares; use --backend signals"), "{text}");
    }
}
