//! What the user should know, though everything goes on.

use std::collections::BTreeSet;

use divvy_policy::{ClientId, Instant, Nanos};

use super::Client;
use crate::Error;
use crate::clients::ById;
use crate::guard::Table;
use crate::members::Tally;

/// The table's file is looked at this often, lest somebody has removed it.
const TABLE_INTERVAL: Nanos = Nanos::from_secs(10);

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Whom it is about; `None` for all.
    pub client: Option<ClientId>,
    /// What it is.
    pub text: String,
}

/// What has not been told yet; each thing is told once.
#[derive(Debug)]
pub(crate) struct Notices {
    pending: Vec<Warning>,
    /// How many clients have told of members that cannot be held.
    unheld: u64,
    /// Clients that have told of processes that run undivided.
    without: BTreeSet<ClientId>,
    /// When the table's file was last looked at; `None` once it was found to be gone.
    table_checked: Option<Instant>,
}

impl Notices {
    pub(super) fn new(pending: Vec<Warning>) -> Self {
        Self { pending, unheld: 0, without: BTreeSet::new(), table_checked: Some(Instant::ZERO) }
    }

    pub(super) fn push(&mut self, client: Option<ClientId>, text: String) {
        self.pending.push(Warning { client, text });
    }

    /// A process of `client` cannot be had as a member just now, for `why`: that is told of the first.
    pub(crate) fn tell_without(&mut self, client: ClientId, why: &Error) {
        self.tell_once(
            client,
            &format!("not all of its processes are divided, and others run beside it: {why}"),
        );
    }

    /// Why some of a client's processes run undivided: once.
    pub(crate) fn tell_once(&mut self, client: ClientId, why: &str) {
        if self.without.insert(client) {
            self.push(Some(client), why.to_owned());
        }
    }

    pub(super) fn take(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.pending)
    }

    /// Looks for what nobody has told by itself.
    pub(super) fn gather(
        &mut self,
        clients: &mut ById<Client>,
        tally: &Tally,
        table: &mut Table,
        now: Instant,
    ) {
        if std::mem::replace(&mut self.unheld, tally.unheld) != tally.unheld {
            for (client, c) in clients.with_ids_mut() {
                if let Some(why) = c.members.take_unheld() {
                    self.push(Some(client), format!("one of its processes is not held: {why}"));
                }
            }
        }
        if self.table_checked.is_some_and(|at| now.since(at) >= TABLE_INTERVAL) {
            self.table_checked = Some(now);
            if table.is_unlinked() {
                self.table_checked = None;
                let path = table.path().display().to_string();
                let text = format!(
                    "{path} was removed: if divvy and its guardian are killed, no rescue knows who is suspended"
                );
                self.push(None, text);
            }
        }
    }
}
