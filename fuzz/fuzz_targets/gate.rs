//! Events and limits for any gate that a user can name: decisions end, are about clients that are there, and are the same again in a
//! replay; a refused event changes nothing.
#![no_main]

use std::collections::BTreeSet;

use divvy_engine::policies::{AnyGate, GateSpec};
use divvy_engine::{TRACE_VERSION, TraceHeader, TraceLine, replay};
use divvy_policy::gate::Limited;
use divvy_policy::{ClientId, CpuId, CpuLimit, Event, Gate, Instant, Nanos, Policy as _, Share};
use libfuzzer_sys::fuzz_target;

/// Ids that events name; some of them never join.
const CLIENTS: u8 = 8;
/// More decisions without an event between them are taken for ones without an end.
const DECISIONS_MAX: usize = 10_000;

fuzz_target!(|data: &[u8]| {
    // A line with the policy, then a byte for the CPUs and one for the quantum, then events.
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let (Some(policy), Some(rest)) = (parts.next(), parts.next()) else { return };
    let Ok(policy) = str::from_utf8(policy) else { return };
    let mut bytes = rest.iter().copied();
    let cpus = u32::from(bytes.next().unwrap_or(0) % 5) + 1;
    let quantum_ns = 1_000_000 << (bytes.next().unwrap_or(3) % 8);
    let gate = GateSpec { policy: policy.to_owned(), quantum_ns, cpus, ..GateSpec::default() };
    let Ok(chosen) = gate.parse() else { return };
    let Ok(made) = chosen.make() else { return };
    let made = Limited::new(made, chosen.cpus_of_dues());
    let header = TraceHeader { divvy_trace: TRACE_VERSION, gate, clients: Vec::new() };
    let text = serde_json::to_string(&header).expect("a header can be written");
    let mut run = Run { gate: made, now: Instant(0), there: BTreeSet::new(), trace: vec![text] };
    while let Some(kind) = bytes.next() {
        run.step(kind, &mut bytes);
    }
    if let Err(divergence) = replay(run.trace.into_iter()) {
        panic!("{divergence}");
    }
});

struct Run {
    gate: Limited<AnyGate>,
    now: Instant,
    there: BTreeSet<ClientId>,
    trace: Vec<String>,
}

impl Run {
    fn step(&mut self, kind: u8, bytes: &mut impl Iterator<Item = u8>) {
        let mut byte = || bytes.next().unwrap_or(0);
        let client = ClientId((byte() % CLIENTS).into());
        let event = match kind % 10 {
            0 | 1 => Event::Join { client, share: share(byte()) },
            2 => Event::Leave { client },
            3 => Event::Reshare { client, share: share(byte()) },
            4 | 5 => Event::Wake { client },
            6 => Event::Block { client },
            7 => Event::Charge { client, used: length(byte()) },
            8 => Event::Width { client, cpus: u32::from(byte() % 6) + 1 },
            9 if byte() % 4 > 0 => return self.limit(client, byte()),
            _ => Event::Free { cpu: CpuId((byte() % 6).into()) },
        };
        // Half of the time goes by in steps, half of it goes to where the gate wants to be asked again.
        self.now = match (kind / 10 % 2, self.gate.poll_timeout()) {
            (0, Some(at)) => at.max(self.now),
            _ => Instant(self.now.0 + length(byte() % 40).0),
        };
        self.tell(event);
        self.poll();
    }

    /// Another limit for a client, or none.
    fn limit(&mut self, client: ClientId, byte: u8) {
        let limit = CpuLimit::new(u64::from(byte % 200) * 10_000).ok();
        let before = format!("{:?}", self.gate);
        match self.gate.set_limit(self.now, client, limit) {
            Ok(()) => self.write(TraceLine::limit(self.now, client, limit)),
            Err(error) => assert_eq!(before, format!("{:?}", self.gate), "{error} and something changed"),
        }
        self.poll();
    }

    fn tell(&mut self, event: Event) {
        let before = format!("{:?}", self.gate);
        if let Err(error) = self.gate.on_event(self.now, event) {
            assert_eq!(
                before,
                format!("{:?}", self.gate),
                "{event:?} was refused ({error}) and changed something"
            );
            return;
        }
        self.write(TraceLine::event(self.now, event));
        match event {
            Event::Join { client, .. } => drop(self.there.insert(client)),
            Event::Leave { client } => drop(self.there.remove(&client)),
            _ => {}
        }
    }

    fn poll(&mut self) {
        for _ in 0..DECISIONS_MAX {
            let decision = self.gate.poll_decision(self.now);
            self.write(TraceLine::decision(self.now, decision));
            let client = match decision {
                None => return,
                Some(Gate::CycleEnd { .. }) => continue,
                Some(
                    Gate::Release { client, .. }
                    | Gate::Hold { client }
                    | Gate::Measure { client }
                    | Gate::Observe { client },
                ) => client,
            };
            assert!(self.there.contains(&client), "{decision:?} is about nobody");
        }
        panic!("{DECISIONS_MAX} decisions and no end");
    }

    fn write(&mut self, line: TraceLine) {
        self.trace.push(serde_json::to_string(&line).expect("a line can be written"));
    }
}

/// From 1 to the largest share that the command line takes, mostly small.
fn share(byte: u8) -> Share {
    let n = if byte < 200 { u64::from(byte % 50) + 1 } else { 1_000_000 >> (byte - 200).min(19) };
    Share::new(n).expect("from 1 to a million")
}

/// From nothing to some ten minutes.
fn length(byte: u8) -> Nanos {
    Nanos(u64::from(byte % 4) * 250_000 << (byte / 4).min(20))
}
