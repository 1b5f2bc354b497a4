//! What jobs were given and used, and the factors that make one the other. No I/O here.
//!
//! Slurm charges a job the CPUs that it was given for as long as it runs, times the `UsageFactor` of its QOS: on a node that several jobs
//! share more than it had. It does so every `PriorityCalcPeriod` (five minutes, unless slurm.conf says otherwise), for the time since it did so
//! last, with the factor that holds at that moment. So a look sets the factor to the part of what was given that was used since the look
//! before, and where looks come at least as often, what is charged follows what was used by a look or two.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Whom Slurm charges: an account's user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Payer {
    pub(super) account: String,
    pub(super) user: String,
}

impl std::fmt::Display for Payer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.account, self.user)
    }
}

impl Payer {
    /// The QOS that is this payer's alone; Slurm has their names in small letters.
    pub(super) fn qos(&self) -> String {
        format!("{QOS_PREFIX}{}-{}", self.account, self.user).to_lowercase()
    }
}

pub(super) const QOS_PREFIX: &str = "divvy-";
/// Factors are set in steps of this: `sacctmgr` is asked only where one has changed by as much.
const STEP: f64 = 0.01;
/// Slurm tells what running jobs used in whole seconds, some seconds late: a factor is of so many CPU seconds at least.
const GIVEN_MIN: f64 = 30.0;
/// A payer is charged at least this part: a factor of 0 would make jobs free.
pub(super) const LEAST: f64 = 0.01;

/// One job, as far as it has come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) payer: Payer,
    /// CPU seconds that it was given: CPUs times time.
    pub(super) given: f64,
    /// CPU seconds that it used; none where Slurm does not tell.
    pub(super) used: Option<f64>,
    pub(super) runs: bool,
    /// When it began, in seconds since 1970.
    pub(super) began: u64,
}

/// What was known of a job at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    given: f64,
    used: f64,
}

/// What is known of a payer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Account {
    /// CPU seconds that its jobs were given, and used, since it was first seen.
    pub(super) given: f64,
    pub(super) used: f64,
    /// What came to both since a factor was set.
    since: Known,
    factor: Option<f64>,
}

impl Account {
    /// The part of what its jobs are given that Slurm is to charge.
    pub(super) fn factor(&self) -> f64 {
        self.factor.unwrap_or(1.0)
    }

    /// Whether that is another factor than `there`.
    pub(super) fn differs(&self, there: f64) -> bool {
        (self.factor() - there).abs() > STEP / 2.0
    }

    fn add(&mut self, sum: Known) {
        self.given += sum.given;
        self.used += sum.used;
        self.since.given += sum.given;
        self.since.used += sum.used;
        let since = self.since;
        // The first is better early than exact.
        if since.given < GIVEN_MIN && self.factor.is_some() || since.given <= 0.0 {
            return;
        }
        self.since = Known::default();
        self.factor = Some(((since.used / since.given / STEP).round() * STEP).clamp(LEAST, 1.0));
    }
}

/// All that is remembered from look to look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Charges {
    /// Of the file; a later one is not understood.
    pub(super) version: u32,
    /// When the last look was, in seconds since 1970; 0 before the first.
    looked: u64,
    jobs: BTreeMap<u64, Known>,
    #[serde(with = "as_list")]
    pub(super) payers: BTreeMap<Payer, Account>,
}

/// JSON has no keys of two words.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{Account, Payer};

    pub(super) fn serialize<S: Serializer>(
        payers: &BTreeMap<Payer, Account>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(payers)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<Payer, Account>, D::Error> {
        Ok(Vec::<(Payer, Account)>::deserialize(from)?.into_iter().collect())
    }
}

/// The format of what is remembered.
pub(super) const VERSION: u32 = 1;

impl Charges {
    /// Takes in at `now` how far the jobs have come: the factors of those who pay for them follow. Jobs that have ended are forgotten.
    pub(super) fn look(&mut self, now: u64, jobs: &[Job]) {
        self.version = VERSION;
        let mut since: BTreeMap<&Payer, Known> = BTreeMap::new();
        let mut known = BTreeMap::new();
        for job in jobs {
            let before = self.jobs.get(&job.id).copied();
            let Some(used) = job.used else {
                // It is taken in when there is something to be known of it again.
                known.extend(before.filter(|_| job.runs).map(|before| (job.id, before)));
                continue;
            };
            // One that had ended before the last look was charged before there was a factor of ours, or was counted then.
            let is_new = job.runs || self.looked > 0 && job.began >= self.looked;
            let Some(before) = before.or_else(|| is_new.then(Known::default)) else { continue };
            // Accounting may know less of a job that has just ended than was known while it ran.
            let now = Known { given: job.given.max(before.given), used: used.max(before.used) };
            let sum = since.entry(&job.payer).or_default();
            sum.given += now.given - before.given;
            sum.used += now.used - before.used;
            if job.runs {
                known.insert(job.id, now);
            }
        }
        (self.jobs, self.looked) = (known, now);
        for (payer, sum) in since {
            self.payers.entry(payer.clone()).or_default().add(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(user: &str) -> Payer {
        Payer { account: "science".into(), user: user.into() }
    }

    fn job(id: u64, user: &str, given: f64, used: f64, runs: bool) -> Job {
        Job { id, payer: payer(user), given, used: Some(used), runs, began: 100 }
    }

    fn factor(charges: &Charges, user: &str) -> f64 {
        charges.payers[&payer(user)].factor()
    }

    #[test]
    fn a_factor_is_the_part_that_was_used_since_the_last_look() {
        let mut charges = Charges::default();
        let (mut given, mut used) = (0.0, 0.0);
        for (part, expected) in [(0.25, 0.25), (0.25, 0.25), (0.254, 0.25), (1.0, 1.0), (0.5, 0.5)] {
            (given, used) = (given + 60.0, used + 60.0 * part);
            charges.look(1000, &[job(1, "alice", given, used, true)]);
            assert!(!charges.payers[&payer("alice")].differs(expected), "{part}: {charges:?}");
        }
        let before = charges.payers[&payer("alice")];
        charges.look(1000, &[job(1, "alice", given, used, true)]);
        assert_eq!(charges.payers[&payer("alice")], before, "no time has passed");
        assert!((before.given - 300.0).abs() < 1e-6 && (before.used - 135.24).abs() < 1e-6, "{before:?}");
    }

    #[test]
    fn looks_that_come_soon_are_taken_together() {
        let mut charges = Charges::default();
        // What is used is known in whole seconds: .25 and .75 of 4 s by turns.
        for look in 1..=30 {
            let used = f64::from(look) + if look % 2 == 0 { 1.0 } else { 0.0 };
            charges.look(1000, &[job(1, "alice", 4.0 * f64::from(look), used, true)]);
            let factor = factor(&charges, "alice");
            assert!((factor - 0.25).abs() <= 0.035, "{look}: {factor}");
        }
    }

    #[test]
    fn jobs_end_and_others_begin() {
        let mut charges = Charges::default();
        charges.look(1000, &[job(7, "bob", 500.0, 100.0, false)]);
        assert!(charges.payers.is_empty(), "it had ended before");
        charges.look(1060, &[job(8, "bob", 60.0, 30.0, true), job(9, "bob", 60.0, 15.0, true)]);
        // One has ended, and accounting does not know yet what it used.
        charges.look(1120, &[job(8, "bob", 90.0, 0.0, false), job(9, "bob", 120.0, 60.0, true)]);
        let account = charges.payers[&payer("bob")];
        assert_eq!(
            (account.given, account.used, account.factor()),
            (210.0, 90.0, 0.5),
            "of 90 s 45 were used"
        );
        charges.look(1180, &[job(9, "bob", 120.0, 60.0, false)]);
        assert!(charges.jobs.is_empty());
        assert_eq!(charges.payers[&payer("bob")], account, "nothing was added");
        // One that came and went between two looks.
        let short = Job { began: 1190, ..job(10, "bob", 40.0, 40.0, false) };
        charges.look(1240, std::slice::from_ref(&short));
        assert_eq!((factor(&charges, "bob"), charges.payers[&payer("bob")].given), (1.0, 250.0));
        charges.look(1300, &[short]);
        assert_eq!(charges.payers[&payer("bob")].given, 250.0, "it is counted once");
    }

    #[test]
    fn what_slurm_does_not_tell_is_no_use_of_nothing() {
        let mut charges = Charges::default();
        charges.look(1000, &[job(1, "alice", 60.0, 30.0, true)]);
        let silent = Job { used: None, ..job(1, "alice", 120.0, 0.0, true) };
        charges.look(1060, &[silent]);
        assert_eq!(factor(&charges, "alice"), 0.5);
        charges.look(1120, &[job(1, "alice", 180.0, 150.0, true)]);
        assert_eq!(factor(&charges, "alice"), 1.0, "120 of 120 s");
    }

    #[test]
    fn a_factor_stays_within_its_bounds() {
        let mut charges = Charges::default();
        // More threads than CPUs were given: it is charged all of these, and no more.
        charges.look(1000, &[job(1, "alice", 60.0, 90.0, true), job(2, "bob", 60.0, 0.0, true)]);
        assert_eq!((factor(&charges, "alice"), factor(&charges, "bob")), (1.0, LEAST));
    }

    #[test]
    fn what_is_remembered_is_read_back() {
        let mut charges = Charges::default();
        charges.look(1000, &[job(1, "alice", 60.0, 15.0, true)]);
        let text = serde_json::to_string(&charges).expect("JSON");
        assert_eq!(serde_json::from_str::<Charges>(&text).expect("its own"), charges);
    }
}
