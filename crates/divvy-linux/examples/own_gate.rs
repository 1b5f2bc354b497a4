//! A policy of one's own over live processes: `cargo run -p divvy-linux --example own_gate`.
//!
//! It needs nothing but divvy's libraries, so that it can be the `main.rs` of a crate anywhere (`docs/new-policy.md`). The gate
//! lets one client run at a time, for as many quanta as it has shares; the host starts commands, holds and releases them by
//! signals, and reads their clocks. A guardian resumes whoever is held should this program be killed.

use std::collections::{BTreeMap, VecDeque};

use divvy_engine::Engine;
use divvy_linux::{Asked, Command, CpuMask, HostParams, LinuxHost, Pid, Signal, clock};
use divvy_policy::{ClientId, Event, EventError, Gate, Instant, Nanos, Policy, Share};

const QUANTUM: Nanos = Nanos::from_millis(10);

/// Turns in the order of ids, each as long as its client's share says.
#[derive(Default)]
struct WeightedTurns {
    clients: BTreeMap<ClientId, Share>,
    /// Whose turn it is, and until when.
    turn: Option<(ClientId, Instant)>,
    out: VecDeque<Gate>,
}

impl WeightedTurns {
    /// Whoever follows `last`, and the first after the last.
    fn next(&self, last: Option<ClientId>) -> Option<(ClientId, Share)> {
        let after = self.clients.iter().find(|(id, _)| Some(**id) > last);
        after.or(self.clients.first_key_value()).map(|(id, share)| (*id, *share))
    }
}

impl Policy for WeightedTurns {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        let known = |client| match self.clients.contains_key(&client) {
            true => Ok(client),
            false => Err(EventError::UnknownClient(client)),
        };
        match event {
            Event::Join { client, share } => {
                if known(client).is_ok() {
                    return Err(EventError::DuplicateClient(client));
                }
                self.clients.insert(client, share);
            }
            Event::Reshare { client, share } => {
                self.clients.insert(known(client)?, share);
            }
            Event::Leave { client } => {
                self.clients.remove(&known(client)?);
                self.out.retain(|gate| gate.client() != Some(client));
                if let Some((_, end)) = self.turn.as_mut().filter(|(on, _)| *on == client) {
                    *end = now;
                }
            }
            // It judges by the clock alone: who sleeps has its turn all the same.
            Event::Wake { client }
            | Event::Block { client }
            | Event::Charge { client, .. }
            | Event::Width { client, .. } => {
                known(client)?;
            }
            Event::Free { cpu } => return Err(EventError::UnknownCpu(cpu)),
        }
        Ok(())
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        if self.turn.is_none_or(|(_, end)| now >= end) {
            let last = self.turn.take().map(|(client, _)| client);
            let (client, share) = self.next(last)?;
            self.turn = Some((client, now + Nanos(QUANTUM.0 * share.get())));
            if last != Some(client) {
                let stays = last.filter(|last| self.clients.contains_key(last));
                self.out.extend(stays.map(|client| Gate::Hold { client }));
                self.out.push_back(Gate::Release { client, cpu: None });
            }
        }
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.turn.map(|(_, end)| end)
    }
}

type Run = Engine<WeightedTurns, LinuxHost>;

/// Starts a command for each share, and schedules them for `length`.
fn divide(run: &mut Run, shares: &[Share], length: Nanos) -> Result<(), Box<dyn std::error::Error>> {
    for _ in shares {
        let argv = ["sh", "-c", "ulimit -t 60; while :; do :; done"].map(Into::into).to_vec();
        run.host_mut().spawn(Command { argv, ..Command::default() })?;
    }
    // Clients join in the order in which they were started, and at one moment.
    for &share in shares {
        run.join(share)?;
    }
    let end = clock::now() + length;
    while clock::now() < end {
        run.turn(Some(end))?;
        if let Some(signal) = run.host_mut().take_asked().into_iter().find(|&s| s != Asked::SIGWINCH) {
            return Err(format!("ended by {signal}").into());
        }
    }
    run.audit();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = Pid::from_raw(std::process::id().cast_signed()).ok_or("no pid")?;
    let cpus = CpuMask::of_thread(own)?.unwrap_or_default();
    let cpu = cpus.iter().next().ok_or("this process may use no CPU")?;
    let host = LinuxHost::new(&HostParams { cpus: Some(CpuMask::only(cpu)), capacity: 16 })?;
    let mut run = Engine::new(WeightedTurns::default(), host, 1);
    let shares = [Share::new(1)?, Share::new(3)?];
    let divided = divide(&mut run, &shares, Nanos::from_secs(3));
    for client in 0..shares.len() as u32 {
        run.host_mut().signal(ClientId(client), Signal::KILL)?; // Who never started, or has ended, is no error.
    }
    divided?;
    let standings = run.ledger().standings(|_, _| true, |_, client| client.service);
    for (share, standing) in shares.iter().zip(standings) {
        println!("share {share}: {:.3} of the time that both received", standing.achieved_fraction);
    }
    Ok(())
}
