//! Processes with shares, each under a name, as clients of a divvyd.

use divvy_api::client::{Api, ApiError, Choice};
use divvy_api::launch::{LaunchError, with_choice};
use divvy_api::types::{Change, Client, ClientState, ErrorCode, LIMIT_PPM_MAX, LIMIT_PPM_MIN, NewClient};

/// What went wrong, by whose fault, and in words.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) words: String,
}

/// The numbers of `include/divvy.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    NoScheduler,
    Refused,
    NoSuch,
    System,
    Internal,
}

impl Failure {
    pub(crate) fn new(kind: Kind, words: impl ToString) -> Self {
        Self { kind, words: words.to_string() }
    }
}

impl From<ApiError> for Failure {
    fn from(e: ApiError) -> Self {
        let kind = match &e {
            ApiError::NotRunning(_) | ApiError::NoSystem(_) | ApiError::Broken { .. } => Kind::NoScheduler,
            ApiError::Place(_) | ApiError::Stranger { .. } => Kind::System,
            ApiError::Mode(_) => Kind::Invalid,
            ApiError::Refused(info) => match info.code {
                ErrorCode::BadRequest => Kind::Invalid,
                ErrorCode::NoSuchClient | ErrorCode::NoSuchProcess => Kind::NoSuch,
                ErrorCode::Leaving => Kind::NoScheduler,
                _ => Kind::Refused,
            },
        };
        Self::new(kind, e)
    }
}

impl From<LaunchError> for Failure {
    fn from(e: LaunchError) -> Self {
        match e {
            LaunchError::Api(e) => e.into(),
            e => Self::new(Kind::NoScheduler, e),
        }
    }
}

/// One line of a report. Fractions are of the CPU time of all lines.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) share: u64,
    pub(crate) limit_ppm: u64,
    pub(crate) target: f64,
    pub(crate) achieved: f64,
    pub(crate) error: f64,
    pub(crate) cpu_ns: u64,
    pub(crate) processes: u32,
    pub(crate) state: ClientState,
}

/// Processes with shares.
#[derive(Debug)]
pub(crate) struct Share {
    choice: Choice,
    start: bool,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    name: String,
    /// What was last known of it while it took part: of one that has left, what it was due is what it was then.
    known: Client,
}

/// Whether a client is no more, and that is no trouble.
fn is_gone(e: &ApiError) -> bool {
    matches!(e.code(), Some(ErrorCode::NoSuchClient | ErrorCode::Leaving))
        || matches!(e, ApiError::NotRunning(_) | ApiError::NoSystem(_))
}

impl Share {
    /// # Errors
    /// Where the divvyd of that choice does not run, and none is to be started or can be.
    pub(crate) fn open(choice: Choice, start: bool) -> Result<Self, Failure> {
        let share = Self { choice, start, members: Vec::new() };
        share.ask(|api| api.status())?;
        Ok(share)
    }

    fn ask<T>(&self, call: impl Fn(&Api) -> Result<T, ApiError>) -> Result<T, Failure> {
        match self.start {
            true => Ok(with_choice(&self.choice, call)?),
            false => Ok(self.choice.api().and_then(|api| call(&api))?),
        }
    }

    /// Asks about, or changes, what is there: a divvyd that ended knows nobody any more, and another would not either.
    fn call<T>(&self, call: impl Fn(&Api) -> Result<T, ApiError>) -> Result<T, ApiError> {
        self.choice.api().and_then(|api| call(&api))
    }

    fn find(&self, name: &str) -> Result<usize, Failure> {
        let found = self.members.iter().position(|member| member.name == name);
        found.ok_or_else(|| Failure::new(Kind::NoSuch, format!("nothing was added as '{name}'")))
    }

    pub(crate) fn add(&mut self, name: &str, selector: &str, share: u64) -> Result<(), Failure> {
        if self.find(name).is_ok() {
            return Err(Failure::new(Kind::Invalid, format!("'{name}' is there already; give another name")));
        }
        let new = NewClient {
            name: Some(name.to_owned()),
            numbered: true,
            share,
            selector: Some(selector.to_owned()),
            ..NewClient::default()
        };
        let known = self.ask(|api| api.add(&new))?;
        self.members.push(Member { name: name.to_owned(), known });
        Ok(())
    }

    fn change(&mut self, name: &str, change: Change) -> Result<(), Failure> {
        let at = self.find(name)?;
        let id = self.members[at].known.id.to_string();
        let changed = self.call(|api| api.change(&id, change))?;
        // One that is paused takes no part, and was due what it was before.
        if change.paused.is_none() {
            self.members[at].known = changed;
        }
        Ok(())
    }

    pub(crate) fn set_share(&mut self, name: &str, share: u64) -> Result<(), Failure> {
        self.change(name, Change { share: Some(share), ..Change::default() })
    }

    pub(crate) fn set_limit(&mut self, name: &str, cpus: f64) -> Result<(), Failure> {
        let ppm = (cpus * 1e6).round();
        let known = ppm == 0.0 || (LIMIT_PPM_MIN as f64..=LIMIT_PPM_MAX as f64).contains(&ppm);
        if !known {
            let words = format!("{cpus} is no limit; give CPUs, 0.01 to 4096, or 0 for none");
            return Err(Failure::new(Kind::Invalid, words));
        }
        self.change(name, Change { limit_ppm: Some(ppm as u64), ..Change::default() })
    }

    pub(crate) fn set_paused(&mut self, name: &str, paused: bool) -> Result<(), Failure> {
        self.change(name, Change { paused: Some(paused), ..Change::default() })
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.find(name)?;
        let id = self.members[at].known.id.to_string();
        match self.call(|api| api.detach(&id)) {
            Err(e) if !is_gone(&e) => return Err(e.into()),
            _ => {}
        }
        self.members.remove(at);
        Ok(())
    }

    /// A line for each, in the order in which they were added.
    pub(crate) fn report(&mut self) -> Result<Vec<Row>, Failure> {
        let mut now = Vec::with_capacity(self.members.len());
        for member in &mut self.members {
            let id = member.known.id.to_string();
            let found = match self.choice.api().and_then(|api| api.client(&id)) {
                Ok(found) => found,
                Err(e) if is_gone(&e) => {
                    Client { state: ClientState::Left, nr_members: 0, ..member.known.clone() }
                }
                Err(e) => return Err(e.into()),
            };
            if found.effective_fraction > 0.0 {
                member.known = found.clone();
            }
            now.push(found);
        }
        let effective: f64 = self.members.iter().map(|member| member.known.effective_fraction).sum();
        let service: u64 = now.iter().map(|client| client.service_ns).sum();
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        Ok(self
            .members
            .iter()
            .zip(now)
            .map(|(member, client)| {
                let target = part(member.known.effective_fraction, effective);
                let achieved = part(client.service_ns as f64, service as f64);
                Row {
                    name: member.name.clone(),
                    share: client.share,
                    limit_ppm: client.limit_ppm.unwrap_or(0),
                    target,
                    achieved,
                    error: if target > 0.0 { achieved / target - 1.0 } else { 0.0 },
                    cpu_ns: client.service_ns,
                    processes: u32::try_from(client.nr_members).unwrap_or(u32::MAX),
                    state: client.state,
                }
            })
            .collect())
    }

    /// Lets all go. Whoever cannot be reached has been let go.
    pub(crate) fn close(self) {
        for member in &self.members {
            let _ = self.call(|api| api.detach(&member.known.id.to_string()));
        }
    }
}
