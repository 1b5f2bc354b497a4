//! The administrator's policy: `/etc/divvy/divvyd.toml`.
//!
//! Everything has a default, and whatever the file does not know how to mean is refused with its line: a key that was
//! misspelt would otherwise be a rule that silently does not hold. Users and groups are kept as they were written, by
//! name or number, and looked up when they are needed: one that is made later is found without a reload.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use divvy_engine::policies::GateSpec;
use divvy_linux::CpuMask;
use divvy_market::{Amount, Resource};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::message::Who;
use super::names::Names;

/// What the client of all of a user's processes is called, which a policy with `everything` makes. Users have nothing else of that name.
pub(crate) const EVERYTHING: &str = "everything";

/// Base tickets of each resource that a user's currency has, unless the policy says otherwise.
const GRANT_DEFAULT: u64 = 1000;
/// The name under `[users]` that means everybody who is not named.
const EVERYBODY: &str = "default";

/// Why a policy cannot be used. Its text names the line, the key and what would do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// It is no TOML, or has a key or value that means nothing.
    #[error("{0}")]
    Text(#[from] toml::de::Error),
    /// The scheduler takes no such policy or quantum.
    #[error("[scheduler]: {0}")]
    Scheduler(divvy_engine::policies::SpecError),
    /// A name that no process can have.
    #[error("[scheduler] protect: {0}")]
    Protect(String),
    /// A bound for everybody.
    #[error(
        "[bounds.default]: a bound is one user's; name each, as in [bounds.alice] (only [users.default] is everybody else)"
    )]
    BoundOfAll,
}

/// What the administrator decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Policy {
    /// What users get, by name or number; `default` is everybody else.
    users: BTreeMap<String, UserTerms>,
    /// How many base tickets users may issue themselves, by name or number.
    pub(crate) bounds: BTreeMap<String, Bounds>,
    pub(crate) admins: Admins,
    pub(crate) limits: Limits,
    pub(crate) scheduler: SchedulerTerms,
    pub(crate) presence: PresenceTerms,
    pub(crate) audit: AuditTerms,
}

/// What the file says about a user; what it leaves out is as for everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table: a line [users.NAME], and cpu = 1000 below it")]
struct UserTerms {
    #[serde(deserialize_with = "grant", skip_serializing_if = "Option::is_none")]
    cpu: Option<Amount>,
    #[serde(deserialize_with = "grant", skip_serializing_if = "Option::is_none")]
    memory: Option<Amount>,
    #[serde(deserialize_with = "grant", skip_serializing_if = "Option::is_none")]
    disk: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    everything: Option<bool>,
}

/// What a user gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserPolicy {
    /// Base tickets of the user's own currency, cpu, memory and disk.
    pub(crate) base: [Amount; 3],
    /// Whether all processes of the user are a client from the start.
    pub(crate) everything: bool,
}

/// How many base tickets a user may issue; none of a resource that is not named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table: a line [bounds.NAME], and cpu = 2000 below it")]
pub(crate) struct Bounds {
    #[serde(deserialize_with = "bound", skip_serializing_if = "Option::is_none")]
    cpu: Option<u64>,
    #[serde(deserialize_with = "bound", skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(deserialize_with = "bound", skip_serializing_if = "Option::is_none")]
    disk: Option<u64>,
}

impl Bounds {
    /// For cpu, memory and disk.
    pub(crate) const fn all(self) -> [Option<u64>; 3] {
        [self.cpu, self.memory, self.disk]
    }
}

/// The superusers of the market, by name or number. User 0 always is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Admins {
    #[serde(deserialize_with = "names")]
    pub(crate) users: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(crate) groups: Vec<String>,
}

impl Default for Admins {
    fn default() -> Self {
        Self { users: vec!["root".to_owned()], groups: Vec::new() }
    }
}

impl Admins {
    /// Whether `who` is one of them, by user or by any group.
    pub(crate) fn has(&self, names: &dyn Names, who: &Who) -> bool {
        let is = |word: &str, id: u32, look: &dyn Fn(&str) -> Option<u32>| {
            word.parse() == Ok(id) || look(word) == Some(id)
        };
        let by_user = |word: &String| is(word, who.uid, &|word| names.user_id(word));
        let by_group =
            |word: &String| who.gids.iter().any(|&gid| is(word, gid, &|word| names.group_id(word)));
        who.uid == 0 || self.users.iter().any(by_user) || self.groups.iter().any(by_group)
    }
}

/// What one user can have and ask for, at most. Superusers are not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// Currencies beside the user's own.
    #[serde(deserialize_with = "count")]
    pub(crate) currencies: u32,
    /// Tickets that the user issued.
    #[serde(deserialize_with = "count")]
    pub(crate) tickets: u32,
    /// Offers that wait.
    #[serde(deserialize_with = "count")]
    pub(crate) offers: u32,
    #[serde(deserialize_with = "count")]
    pub(crate) clients: u32,
    /// Requests a second, in the long run.
    #[serde(deserialize_with = "count")]
    pub(crate) requests_per_second: u32,
    /// Requests at once.
    #[serde(deserialize_with = "count")]
    pub(crate) burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { currencies: 64, tickets: 1024, offers: 64, clients: 256, requests_per_second: 200, burst: 400 }
    }
}

/// How CPUs are divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SchedulerTerms {
    /// As for `divvy share --policy`.
    pub(crate) policy: String,
    /// CPU time of one share in one cycle.
    #[serde(with = "span")]
    pub(crate) quantum: Duration,
    /// All that divvyd itself may use if not given.
    #[serde(
        deserialize_with = "cpus",
        serialize_with = "cpus_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) cpus: Option<CpuMask>,
    /// Names of processes that are never touched, beside those that are never touched anyway.
    #[serde(deserialize_with = "names")]
    pub(crate) protect: Vec<String>,
}

impl Default for SchedulerTerms {
    fn default() -> Self {
        let spec = GateSpec::default();
        let quantum = Duration::from_nanos(spec.quantum_ns);
        Self { policy: spec.policy, quantum, cpus: None, protect: Vec::new() }
    }
}

/// When a client counts as one that does not compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PresenceTerms {
    /// After it slept for so long; 1ms to 1h.
    #[serde(with = "idle")]
    pub(crate) idle_after: Duration,
}

impl Default for PresenceTerms {
    fn default() -> Self {
        Self { idle_after: Duration::from_secs(1) }
    }
}

/// How much of the audit log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuditTerms {
    /// Lines, at most; whoever has the most loses its oldest first.
    #[serde(deserialize_with = "rows")]
    pub(crate) rows_max: u64,
    /// Lines of one user, at most; user 0 is not bounded by this.
    #[serde(deserialize_with = "rows_of_one")]
    pub(crate) rows_per_user_max: u64,
}

impl Default for AuditTerms {
    fn default() -> Self {
        Self { rows_max: 1_000_000, rows_per_user_max: 100_000 }
    }
}

impl Policy {
    /// The policy that a file's `text` says.
    ///
    /// # Errors
    /// [`PolicyError`] names the line and the key.
    pub(crate) fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy: Self = toml::from_str(text)?;
        let SchedulerTerms { policy: name, quantum, .. } = &policy.scheduler;
        let quantum_ns = u64::try_from(quantum.as_nanos()).unwrap_or(u64::MAX);
        let spec = GateSpec { policy: name.clone(), quantum_ns, ..GateSpec::default() };
        spec.make().map_err(PolicyError::Scheduler)?;
        for name in &policy.scheduler.protect {
            crate::protect::checked(name).map_err(PolicyError::Protect)?;
        }
        if policy.bounds.contains_key(EVERYBODY) {
            return Err(PolicyError::BoundOfAll);
        }
        Ok(policy)
    }

    /// What user `uid`, who is called `name`, gets.
    pub(crate) fn user(&self, uid: u32, name: Option<&str>) -> UserPolicy {
        let named = name.filter(|name| *name != EVERYBODY).and_then(|name| self.users.get(name));
        let own = named.or_else(|| self.users.get(&uid.to_string())).copied().unwrap_or_default();
        let all = self.users.get(EVERYBODY).copied().unwrap_or_default();
        let usual = Amount::new(GRANT_DEFAULT).unwrap_or(Amount::MAX);
        let grant = |own: Option<Amount>, all: Option<Amount>| own.or(all).unwrap_or(usual);
        UserPolicy {
            base: [grant(own.cpu, all.cpu), grant(own.memory, all.memory), grant(own.disk, all.disk)],
            everything: own.everything.or(all.everything).unwrap_or(false),
        }
    }

    /// The users whom the policy names twice, by name and by number: the name holds. `number` knows the users' numbers.
    pub(crate) fn twice(&self, number: impl Fn(&str) -> Option<u32>) -> Vec<(&'static str, &str, u32)> {
        let users = self.users.keys().map(|name| ("users", name));
        let bounds = self.bounds.keys().map(|name| ("bounds", name));
        let named = users.chain(bounds).filter(|(_, name)| name.parse::<u32>().is_err());
        let numbered = named.filter_map(|(table, name)| Some((table, name.as_str(), number(name)?)));
        let has = |table: &str, uid: u32| match table {
            "users" => self.users.contains_key(&uid.to_string()),
            _ => self.bounds.contains_key(&uid.to_string()),
        };
        numbered.filter(|(table, _, uid)| has(table, *uid)).collect()
    }

    /// Bounds no larger than what the policy gives to the same user anyway, who can issue nothing by them then: whose, of what, the bound,
    /// and what is given. A bound of 0 says just that.
    pub(crate) fn idle_bounds(
        &self,
        number: impl Fn(&str) -> Option<u32>,
        called: impl Fn(u32) -> Option<String>,
    ) -> Vec<(&str, Resource, u64, u64)> {
        let of_user = |(name, bounds): (&'_ String, &Bounds)| {
            let by_number = name.parse().ok();
            let uid = by_number.or_else(|| number(name)).unwrap_or(u32::MAX);
            let name = by_number.map_or_else(|| Some(name.clone()), &called);
            let given = self.user(uid, name.as_deref()).base.map(Amount::get);
            let each = Resource::ALL.into_iter().zip(bounds.all()).zip(given);
            each.filter_map(|((resource, bound), given)| Some((resource, bound?, given))).collect::<Vec<_>>()
        };
        let all = self
            .bounds
            .iter()
            .flat_map(|of| of_user(of).into_iter().map(|(r, b, g)| (of.0.as_str(), r, b, g)));
        all.filter(|&(_, _, bound, given)| bound > 0 && bound <= given).collect()
    }

    /// The users whom the policy names and who are not `known` by name, each with the table that names them.
    pub(crate) fn strangers(&self, known: impl Fn(&str) -> bool) -> Vec<(&'static str, &str)> {
        let users = self.users.keys().filter(|name| *name != EVERYBODY).map(|name| ("users", name));
        let bounds = self.bounds.keys().map(|name| ("bounds", name));
        let admins = self.admins.users.iter().map(|name| ("admins", name));
        let all = users.chain(bounds).chain(admins).map(|(table, name)| (table, name.as_str()));
        // A number needs no account; in `users` it is found as it is shown only.
        let is_number = |table, name: &str| {
            name.parse::<u32>().is_ok_and(|number| table != "users" || number.to_string() == name)
        };
        all.filter(|&(table, name)| !is_number(table, name) && !known(name)).collect()
    }

    /// Whether that is so of users whom the policy does not name.
    pub(crate) fn everything_of_all(&self) -> bool {
        self.users.get(EVERYBODY).and_then(|terms| terms.everything).unwrap_or(false)
    }

    /// The users, by name or number, all of whose processes are a client from the start. Those who are only meant by
    /// `default` are not in the list: they are found by what they run.
    pub(crate) fn everything(&self) -> impl Iterator<Item = &str> {
        let all = self.everything_of_all();
        let named = self.users.iter().filter(|(name, _)| *name != EVERYBODY);
        named.filter(move |(_, terms)| terms.everything.unwrap_or(all)).map(|(name, _)| name.as_str())
    }
}

/// A whole number of TOML or JSON within a range. What is outside is refused in words, and so with its line.
struct Whole {
    least: u64,
    most: u64,
}

impl de::Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.least, self.most)
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<u64, E> {
        let wrong = || de::Error::invalid_value(de::Unexpected::Signed(n), &self);
        u64::try_from(n).ok().filter(|n| (self.least..=self.most).contains(n)).ok_or_else(wrong)
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<u64, E> {
        let wrong = || de::Error::invalid_value(de::Unexpected::Unsigned(n), &self);
        Some(n).filter(|n| (self.least..=self.most).contains(n)).ok_or_else(wrong)
    }
}

fn whole<'de, D: Deserializer<'de>>(from: D, least: u64, most: u64) -> Result<u64, D::Error> {
    from.deserialize_u64(Whole { least, most })
}

/// A list of names. One name alone is none, and is told how it is one.
struct List;

impl<'de> de::Visitor<'de> for List {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names in brackets, as in [\"one\", \"other\"]")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
        let mut all = Vec::new();
        while let Some(name) = seq.next_element()? {
            all.push(name);
        }
        Ok(all)
    }
}

fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(List)
}

fn grant<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Amount>, D::Error> {
    let n = whole(from, 1, Amount::MAX.get())?;
    Amount::new(n).map(Some).map_err(de::Error::custom)
}

fn bound<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    whole(from, 0, i64::MAX as u64).map(Some)
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1, 1_000_000_000).map(|n| n as u32)
}

fn rows<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    whole(from, 1000, 1_000_000_000_000)
}

fn rows_of_one<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    whole(from, 100, 1_000_000_000_000)
}

fn cpus<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CpuMask>, D::Error> {
    let list = quoted(from, "CPUs in quotes, as in cpus = \"0,2-3\"")?;
    list.parse().map(Some).map_err(de::Error::custom)
}

/// A text, called what is `expected` where it is none.
fn quoted<'de, D: Deserializer<'de>>(from: D, expected: &'static str) -> Result<String, D::Error> {
    struct Quoted(&'static str);

    impl de::Visitor<'_> for Quoted {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    from.deserialize_str(Quoted(expected))
}

fn cpus_text<S: Serializer>(cpus: &Option<CpuMask>, to: S) -> Result<S::Ok, S::Error> {
    match cpus {
        Some(cpus) => to.collect_str(cpus),
        None => to.serialize_none(),
    }
}

/// Times as `10ms`, `1s`.
mod span {
    use super::{Deserializer, Duration, Serializer, de};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = super::quoted(from, "a time in quotes, as in \"10ms\"")?;
        divvy_api::time::parse(&text).map_err(|why| de::Error::custom(format!("\"{text}\": {why}")))
    }
}

/// As [`span`], within the limits of a time after which somebody counts as idle.
mod idle {
    use super::{Deserializer, Duration, de, span};
    pub(super) use span::serialize;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let time = span::deserialize(from)?;
        let fits = (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&time);
        let wrong =
            || de::Error::custom(format!("{} is not from 1ms to 1h", humantime::format_duration(time)));
        fits.then_some(time).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(user: UserPolicy) -> [u64; 3] {
        user.base.map(Amount::get)
    }

    /// What is installed as an example says the defaults, and what it comments out can be uncommented.
    #[test]
    fn the_example_is_the_defaults() {
        const EXAMPLE: &str = include_str!("../../../../dist/divvyd.toml");
        assert_eq!(Policy::parse(EXAMPLE).unwrap(), Policy::default());
        let written = toml::to_string(&Policy::default()).unwrap();
        let keys = written.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key);
        for key in keys {
            assert!(EXAMPLE.lines().any(|line| line.starts_with(&format!("{key} = "))), "nothing of {key}");
        }
        let uncommented: Vec<&str> = EXAMPLE
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .collect();
        let policy = Policy::parse(&uncommented.join("\n")).unwrap();
        assert_eq!(amounts(policy.user(1000, Some("alice"))), [2000, 1000, 1000]);
        assert_eq!(policy.bounds.len(), 1);
        assert!(policy.scheduler.cpus.is_some());
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let policy = Policy::parse("").unwrap();
        assert_eq!(policy, Policy::default());
        assert_eq!(amounts(policy.user(1000, Some("alice"))), [1000; 3]);
        assert!(!policy.user(1000, None).everything);
        assert_eq!(policy.admins.users, ["root"]);
        assert_eq!(policy.limits.tickets, 1024);
        assert_eq!(policy.scheduler.quantum, Duration::from_millis(10));
        assert_eq!(policy.presence.idle_after, Duration::from_secs(1));
        assert_eq!((policy.audit.rows_max, policy.audit.rows_per_user_max), (1_000_000, 100_000));
    }

    #[test]
    fn every_key_is_read_and_written_again() {
        let text = r#"
            [users.default]
            cpu = 500
            [users.alice]
            cpu = 2000
            everything = true
            [users.1001]
            disk = 7
            [bounds.alice]
            cpu = 500
            [admins]
            users = ["root", "carol"]
            groups = ["wheel"]
            [limits]
            currencies = 1
            tickets = 2
            offers = 3
            clients = 4
            requests_per_second = 5
            burst = 6
            [scheduler]
            policy = "exact"
            quantum = "20ms"
            cpus = "0,2-3"
            protect = ["sshd"]
            [presence]
            idle_after = "1500ms"
            [audit]
            rows_max = 1000
            rows_per_user_max = 100
        "#;
        let policy = Policy::parse(text).unwrap();
        assert_eq!(amounts(policy.user(1000, Some("alice"))), [2000, 1000, 1000]);
        assert_eq!(amounts(policy.user(1001, Some("bob"))), [500, 1000, 7], "by number, the rest as for all");
        assert_eq!(amounts(policy.user(1002, None)), [500, 1000, 1000]);
        assert_eq!(policy.everything().collect::<Vec<_>>(), ["alice"]);
        assert_eq!(policy.bounds["alice"].all(), [Some(500), None, None]);
        assert_eq!(policy.scheduler.cpus.unwrap().iter().collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(policy.limits.burst, 6);
        assert_eq!(Policy::parse(&toml::to_string(&policy).unwrap()).unwrap(), policy);
        let default = toml::to_string(&Policy::default()).unwrap();
        assert_eq!(Policy::parse(&default).unwrap(), Policy::default());
    }

    /// `docs/policy.md` has every key with its default, and no other.
    #[test]
    fn the_reference_is_the_code() {
        const PAGE: &str = include_str!("../../../../docs/policy.md");
        let cells = PAGE.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let (key, default) = (cells.next()?.strip_suffix('`')?, cells.next()?);
            assert!(cells.next().is_some_and(|is| is.len() > 8), "{line}: what is it?");
            Some((key.to_owned(), default.trim_matches('`').to_owned()))
        });
        let page: BTreeMap<String, String> = cells.collect();
        // Every key there is: what may be left out is given, so that a new one is missed here.
        let one = Amount::new(1).ok();
        let given = UserTerms { cpu: one, memory: one, disk: one, everything: Some(true) };
        let bounds = Bounds { cpu: Some(1), memory: Some(1), disk: Some(1) };
        let all = Policy {
            users: [("NAME".to_owned(), given)].into(),
            bounds: [("NAME".to_owned(), bounds)].into(),
            scheduler: SchedulerTerms { cpus: "0".parse().ok(), ..SchedulerTerms::default() },
            ..Policy::default()
        };
        let (mut keys, mut defaults) = (BTreeMap::new(), BTreeMap::new());
        flatten("", &toml::Value::try_from(&all).unwrap(), &mut keys);
        flatten("", &toml::Value::try_from(Policy::default()).unwrap(), &mut defaults);
        let usual = UserPolicy { ..Policy::default().user(1, None) };
        for key in keys.keys() {
            let default = match key.as_str() {
                "users.NAME.everything" => usual.everything.to_string(),
                key if key.starts_with("users.NAME.") => usual.base[0].get().to_string(),
                key if key.starts_with("bounds.NAME.") => "none".to_owned(),
                "scheduler.cpus" => "all".to_owned(),
                key => defaults[key].clone(),
            };
            assert_eq!(page.get(key), Some(&default), "{key}");
        }
        assert_eq!(page.len(), keys.len(), "{page:?}");
    }

    fn flatten(above: &str, value: &toml::Value, to: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(key, value)| {
                let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
                flatten(&path, value, to);
            }),
            value => drop(to.insert(above.to_owned(), value.to_string())),
        }
    }

    #[test]
    fn a_user_who_is_called_default_is_not_everybody() {
        let policy = Policy::parse("[users.default]\ncpu = 5\n[users.77]\ncpu = 6").unwrap();
        assert_eq!(policy.user(77, Some("default")).base[0].get(), 6);
    }

    /// What is wrong, where, and what would do.
    #[test]
    fn bad_input_is_refused_with_its_line() {
        let table = [
            ("[users.alice]\ncpu = 0", "line 2, column 7", "a whole number from 1 to 4294967295"),
            ("[users.alice]\ncpu = -1", "line 2, column 7", "`-1`"),
            ("[users.alice]\ncpu = 4294967296", "line 2, column 7", "a whole number from 1 to 4294967295"),
            ("[users.alice]\ncpu = \"1000\"", "line 2, column 7", "string"),
            ("[users.alice]\ncpu = 1.5", "line 2, column 7", "floating point"),
            ("[users.alice]\ncpus = 1", "line 2, column 1", "unknown field `cpus`"),
            ("[bounds.alice]\ncpu = -5", "line 2, column 7", "a whole number from 0"),
            ("[user.alice]\ncpu = 1", "line 1, column 2", "unknown field `user`"),
            (
                "[admins]\nusers = \"root\"",
                "line 2, column 9",
                "a list of names in brackets, as in [\"one\", \"other\"]",
            ),
            ("[scheduler]\nprotect = \"sshd\"", "line 2, column 11", "a list of names in brackets"),
            (
                "[users]\nalice = 5",
                "line 2, column 9",
                "a table: a line [users.NAME], and cpu = 1000 below it",
            ),
            ("[bounds]\nalice = 5", "line 2, column 9", "a table: a line [bounds.NAME]"),
            ("[bounds.default]\ncpu = 5", "[bounds.default]", "as in [bounds.alice]"),
            ("[limits]\nburst = 0", "line 2, column 9", "a whole number from 1"),
            ("[limits]\nticket = 5", "line 2, column 1", "unknown field `ticket`"),
            ("[scheduler]\nquantum = \"10\"", "line 2, column 11", "is no time"),
            ("[scheduler]\ncpus = \"3-1\"", "line 2, column 8", ""),
            ("[scheduler]\ncpus = 0", "line 2, column 8", "expected CPUs in quotes, as in cpus = \"0,2-3\""),
            ("[scheduler]\nquantum = 10", "line 2, column 11", "expected a time in quotes, as in \"10ms\""),
            ("[presence]\nidle_after = 1", "line 2, column 14", "expected a time in quotes"),
            ("[presence]\nidle_after = \"2h\"", "line 2, column 14", "from 1ms to 1h"),
            ("[audit]\nrows_max = 10", "line 2, column 12", "from 1000"),
            ("[users.alice\ncpu = 1", "line 1", ""),
            ("[limits]\nburst = 1\nburst = 2", "line 3", "duplicate"),
        ];
        for (text, place, words) in table {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_path_protects_nobody() {
        let error = |name: &str| {
            Policy::parse(&format!("[scheduler]\nprotect = [\"a*\", \"{name}\"]")).unwrap_err().to_string()
        };
        let said = "[scheduler] protect: '/usr/sbin/sshd' is a path, and processes are known by their names: write sshd";
        assert_eq!(error("/usr/sbin/sshd"), said);
        assert!(error("/usr/sbin/").ends_with("write the name alone"));
    }

    #[test]
    fn who_is_named_twice_is_told_of() {
        let text = "[users.7]\ncpu = 1\n[users.alice]\ncpu = 2\n[users.bob]\ncpu = 3\n[bounds.alice]\ncpu = 9\n[bounds.8]\ncpu = 9";
        let policy = Policy::parse(text).unwrap();
        let number = |name: &str| match name {
            "alice" => Some(7),
            "bob" => Some(8),
            _ => None,
        };
        assert_eq!(policy.twice(number), [("users", "alice", 7)]);
        assert_eq!(policy.user(7, Some("alice")).base[0].get(), 2, "the name holds");
    }

    #[test]
    fn a_bound_that_allows_nothing_is_told_of() {
        let text = "[users.alice]\ncpu = 500\n[users.default]\nmemory = 7\n[bounds.alice]\ncpu = 500\nmemory = 8\n[bounds.8]\ndisk = 999\n\
                    [bounds.carol]\ncpu = 0\n[bounds.dave]\ncpu = 1001";
        let policy = Policy::parse(text).unwrap();
        let idle = policy.idle_bounds(|_| None, |_| None);
        assert_eq!(idle, [("8", Resource::Disk, 999, 1000), ("alice", Resource::Cpu, 500, 500)]);
        // By number what is said of the name counts.
        let policy = Policy::parse("[users.alice]\ncpu = 5000\n[bounds.7]\ncpu = 3000").unwrap();
        let called = |uid| (uid == 7).then(|| "alice".to_owned());
        assert_eq!(policy.idle_bounds(|_| None, called), [("7", Resource::Cpu, 3000, 5000)]);
    }

    #[test]
    fn the_scheduler_checks_its_own() {
        for (text, words) in [
            ("[scheduler]\npolicy = \"fairest\"", "fairest"),
            ("[scheduler]\nquantum = \"1ns\"", "quantum"),
            ("[scheduler]\npolicy = \"exact:colour=3\"", "colour"),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("[scheduler]: ") && error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn whom_nobody_is_called_like_is_a_stranger() {
        let text = "[users.064031]\ncpu = 1\n[users.7]\ncpu = 1\n[users.alice]\ncpu = 1\n[users.bob]\ncpu = 1\n\
                    [users.default]\ncpu = 1\n[bounds.007]\ncpu = 1\n[admins]\nusers = [\"8\", \"eve\"]";
        let policy = Policy::parse(text).unwrap();
        // A number with a zero before it is no user's in that table; in the others it is read.
        let strangers = policy.strangers(|name| name == "alice");
        assert_eq!(strangers, [("users", "064031"), ("users", "bob"), ("admins", "eve")]);
        // An account may be called so.
        assert_eq!(policy.strangers(|_| true), []);
    }

    #[test]
    fn resources_come_in_the_markets_order() {
        assert_eq!(Resource::ALL.map(|resource| resource.to_string()), ["cpu", "memory", "disk"]);
    }
}
