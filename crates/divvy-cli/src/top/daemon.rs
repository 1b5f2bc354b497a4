//! A divvyd and every `divvy share`, asked at every look.

use divvy_api::client::{Api, ApiError, Choice, encode};
use divvy_api::runs::{self, ShareRun};
use divvy_api::types::{self, ClientState, Clients, GroupChange};
use divvy_policy::Nanos;

use super::source::{Change, Client, Kind, Member, Own, SNAPSHOT_VERSION, Snapshot, Source};
use crate::Failure;

/// Ids of rows that are no clients of divvyd: groups, runs and their tasks.
const OTHERS: u32 = 1 << 31;

/// A divvyd, if one runs, and every `divvy share` beside it.
pub(crate) struct Daemon {
    api: Option<Api>,
    /// The ids of rows that are no clients, by what they are: `group build`, `run 4711`, `run 4711 task 2`.
    others: Vec<String>,
}

impl Daemon {
    /// That divvyd, or none: every `divvy share` is seen all the same.
    pub(crate) fn of(api: Option<Api>) -> Self {
        Self { api, others: Vec::new() }
    }

    /// Whether there is one to be asked.
    pub(crate) fn has_divvyd(&self) -> bool {
        self.api.is_some()
    }

    /// The API's path of a row that can be changed: a client of divvyd's, or a group.
    pub(crate) fn path_of(&self, row: u32) -> Option<String> {
        match row.checked_sub(OTHERS).map(|at| self.others.get(at as usize)) {
            None => Some(format!("/v1/clients/{row}")),
            Some(what) => what?.strip_prefix("group ").map(|path| format!("/v1/groups/{}", encode(path))),
        }
    }

    /// The divvyd of that choice.
    ///
    /// # Errors
    /// [`Failure`] with [`Code::Scheduler`](crate::Code::Scheduler) and what to do where neither one nor a `divvy share` runs.
    pub(super) fn connect(choice: &Choice) -> Result<Self, Failure> {
        match choice.api() {
            Ok(api) => Ok(Self::of(Some(api))),
            Err(ApiError::NotRunning(_)) if !runs::all().unwrap_or_default().is_empty() => Ok(Self::of(None)),
            Err(e @ ApiError::NotRunning(_)) => {
                let why =
                    format!("{e}; divvy run -s 3 -- COMMAND starts one, divvy top --replay TRACE needs none");
                Err(Failure::new(crate::Code::Scheduler, why))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The id of a row that is no client of divvyd: the same at every look.
    fn id(&mut self, what: String) -> u32 {
        let at = self.others.iter().position(|other| *other == what).unwrap_or_else(|| {
            self.others.push(what);
            self.others.len() - 1
        });
        OTHERS + u32::try_from(at).unwrap_or(u32::MAX - OTHERS)
    }

    /// A row for each group, above its clients, and for each client.
    fn tree(&mut self, all: Clients) -> Vec<Client> {
        let measured = is_measured(&all.clients);
        let mut rows = Vec::with_capacity(all.clients.len() + all.groups.len());
        let beside = |path: Option<&str>| -> u64 {
            let clients = all.clients.iter().filter(|c| c.group.as_deref() == path).map(|c| c.share);
            let groups = all.groups.iter().filter(|g| parent(&g.name) == path).map(|g| g.share);
            clients.chain(groups).sum()
        };
        let of = |path: Option<&str>| {
            let depth = path.map_or(0, |path| path.split('/').count());
            let beside = beside(path);
            let clients = all.clients.iter().filter(|c| c.group.as_deref() == path).cloned();
            clients.map(|c| Client { depth, beside, measured, ..client(c) }).collect::<Vec<_>>()
        };
        rows.extend(of(None));
        for group in &all.groups {
            let above = parent(&group.name);
            let within = of(Some(&group.name));
            rows.push(Client {
                id: self.id(format!("group {}", group.name)),
                name: format!("{}/", group.name.rsplit('/').next().unwrap_or_default()),
                kind: Kind::Group,
                depth: above.map_or(0, |path| path.split('/').count()),
                beside: beside(above),
                measured,
                share: group.share,
                requested_fraction: group.requested_fraction,
                effective_fraction: group.effective_fraction,
                achieved_fraction: group.achieved_fraction,
                relative_error: group.relative_error,
                service_ns: group.service_ns,
                state: if group.paused { ClientState::Paused } else { ClientState::Running },
                width: within.iter().map(|c| c.width).sum(),
                nr_members: within.iter().map(|c| c.nr_members).sum(),
                ..nobody()
            });
            rows.extend(within);
        }
        rows
    }

    /// A row for a run, and one for each of its tasks.
    fn run(&mut self, run: ShareRun) -> Vec<Client> {
        let shares = run.clients.iter().map(|c| c.share).sum();
        let measured = is_measured(&run.clients);
        let mut rows = vec![Client {
            id: self.id(format!("run {}", run.pid)),
            name: format!("share {}", run.pid),
            kind: Kind::Run,
            selector: format!("divvy share, policy {}: divides its tasks by itself", run.policy),
            beside: 1,
            measured,
            service_ns: run.clients.iter().map(|c| c.service_ns).sum(),
            requested_fraction: 1.0,
            effective_fraction: 1.0,
            achieved_fraction: 1.0,
            width: run.cpus.len() as u32,
            nr_members: run.clients.iter().map(|c| c.nr_members).sum(),
            ..nobody()
        }];
        for task in run.clients {
            let id = self.id(format!("run {} task {}", run.pid, task.id));
            rows.push(Client {
                id,
                kind: Kind::Task,
                depth: 1,
                beside: shares,
                measured,
                members: None,
                ..client(task)
            });
        }
        rows
    }
}

/// The group that another is in.
fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

/// Whether anybody had any CPU time: before that nobody has a part of it.
fn is_measured(clients: &[types::Client]) -> bool {
    clients.iter().any(|client| client.achieved_fraction > 0.0)
}

/// What is the same of all rows that are no clients.
fn nobody() -> Client {
    Client { share: 1, effective_share: 1.0, state: ClientState::Running, width: 1, ..Client::default() }
}

impl Source for Daemon {
    fn snapshot(&mut self, elapsed: Nanos) -> Result<Snapshot, String> {
        let runs = runs::all().unwrap_or_default();
        let ask = |api: &Api| Ok::<_, ApiError>((api.status()?, api.clients()?));
        let mut snapshot = match &self.api {
            Some(api) => {
                let (status, clients) = ask(api).map_err(|e| e.to_string())?;
                Snapshot {
                    version: SNAPSHOT_VERSION,
                    source: format!("divvyd {}", status.pid),
                    policy: status.policy,
                    quantum_ns: status.quantum_ns,
                    cpus: status.cpus.len() as u32,
                    now_ns: status.uptime_ns,
                    ended: false,
                    cycles: None,
                    own: Own {
                        cpu_ns: Some(status.own.cpu_ns),
                        wakeups: status.own.wakeups,
                        reads: status.own.reads,
                        signals: status.own.signals,
                    },
                    clients: self.tree(clients),
                }
            }
            None => Snapshot {
                version: SNAPSHOT_VERSION,
                source: "no divvyd".to_owned(),
                policy: runs.first().map_or_else(String::new, |run| run.policy.clone()),
                quantum_ns: 0,
                cpus: runs.iter().map(|run| run.cpus.len() as u32).max().unwrap_or(1),
                now_ns: runs.first().map_or(elapsed.0, |run| run.uptime_ns),
                ended: runs.is_empty(),
                cycles: None,
                own: Own::default(),
                clients: Vec::new(),
            },
        };
        for run in runs {
            let rows = self.run(run);
            snapshot.clients.extend(rows);
        }
        snapshot.clients.iter_mut().enumerate().for_each(|(i, row)| row.order = i);
        Ok(snapshot)
    }

    fn change(&mut self, client: u32, change: Change) -> Result<String, String> {
        let what = client.checked_sub(OTHERS).and_then(|at| self.others.get(at as usize));
        let what = what.map(|what| what.split_once(' ').unwrap_or((what, "")));
        let (Some(api), None | Some(("group", _))) = (&self.api, what) else {
            return Err(
                "a `divvy share` keeps the shares that it was started with; `divvy run` makes clients \
                        that can be changed"
                    .to_owned(),
            );
        };
        let (share, paused) = match change {
            Change::Share(share) => (Some(share), None),
            Change::Pause(paused) => (None, Some(paused)),
        };
        if let Some((_, path)) = what {
            let group = api.change_group(path, GroupChange { share, paused }).map_err(|e| e.to_string())?;
            return Ok(match change {
                Change::Share(_) => format!("{path}/: share {}", group.share),
                Change::Pause(true) => format!("{path}/: paused; its share goes to the others"),
                Change::Pause(false) => format!("{path}/: resumed"),
            });
        }
        let wanted = types::Change { share, paused, ..types::Change::default() };
        let changed = api.change(&client.to_string(), wanted).map_err(|e| e.to_string())?;
        Ok(match change {
            Change::Share(_) => format!("{}: share {}", changed.name, changed.share),
            Change::Pause(true) => format!("{}: paused; its share goes to the others", changed.name),
            Change::Pause(false) => format!("{}: {}", changed.name, changed.state.as_str()),
        })
    }
}

fn client(client: types::Client) -> Client {
    let members = client.members.into_iter().map(|member| Member {
        pid: member.pid,
        name: member.name,
        state: word(member.state),
        permitted: member.permitted,
    });
    Client {
        id: client.id,
        name: client.name,
        selector: client.selector,
        share: client.share,
        limit_ppm: client.limit_ppm,
        effective_share: client.effective_share,
        requested_fraction: client.requested_fraction,
        effective_fraction: client.effective_fraction,
        achieved_fraction: client.achieved_fraction,
        relative_error: client.relative_error,
        service_ns: client.service_ns,
        state: client.state,
        width: client.width,
        uses: client.uses,
        not_permitted: u32::try_from(client.not_permitted).unwrap_or(u32::MAX),
        nr_members: client.nr_members,
        members: Some(members.collect()),
        ..Client::default()
    }
}

fn word(state: types::MemberState) -> String {
    match state {
        types::MemberState::Running => "running",
        types::MemberState::Asleep => "asleep",
        types::MemberState::Suspended => "held",
        types::MemberState::Ended => "ended",
    }
    .to_owned()
}
