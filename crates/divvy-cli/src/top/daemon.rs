//! A divvyd, asked at every look.

use divvy_api::client::{Api, ApiError, Choice};
use divvy_api::types;
use divvy_policy::Nanos;

use super::source::{Change, Client, Member, Own, SNAPSHOT_VERSION, Snapshot, Source};
use crate::Failure;

/// A divvyd.
pub(super) struct Daemon {
    api: Api,
}

impl Daemon {
    /// The divvyd of that choice.
    ///
    /// # Errors
    /// [`Failure`] with [`Code::Scheduler`](crate::Code::Scheduler) and what to do where none runs.
    pub(super) fn connect(choice: &Choice) -> Result<Self, Failure> {
        match choice.api() {
            Ok(api) => Ok(Self { api }),
            Err(e @ ApiError::NotRunning(_)) => {
                let why =
                    format!("{e}; divvy run -s 3 -- COMMAND starts one, divvy top --replay TRACE needs none");
                Err(Failure::new(crate::Code::Scheduler, why))
            }
            Err(e) => Err(e.into()),
        }
    }
}

impl Source for Daemon {
    fn snapshot(&mut self, _: Nanos) -> Result<Snapshot, String> {
        let ask = || Ok::<_, ApiError>((self.api.status()?, self.api.clients()?));
        let (status, clients) = ask().map_err(|e| e.to_string())?;
        Ok(Snapshot {
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
            clients: clients.clients.into_iter().map(client).collect(),
        })
    }

    fn change(&mut self, client: u32, change: Change) -> Result<String, String> {
        let wanted = match change {
            Change::Share(share) => types::Change { share: Some(share), ..types::Change::default() },
            Change::Pause(paused) => types::Change { paused: Some(paused), ..types::Change::default() },
        };
        let changed = self.api.change(&client.to_string(), wanted).map_err(|e| e.to_string())?;
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
        not_permitted: u32::try_from(client.not_permitted).unwrap_or(u32::MAX),
        nr_members: client.nr_members,
        members: Some(members.collect()),
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
