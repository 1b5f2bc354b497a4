//! How late decisions come: a gate that notes when it was called and decides what the one inside decides.

use std::cell::RefCell;
use std::rc::Rc;

use divvy_engine::policies::AnyGate;
use divvy_policy::{ClientId, Event, EventError, Gate, Instant, Policy};

use super::Lateness;
use crate::paper::stats;

/// The delays noted so far, ns, shared with the gate inside of an engine.
pub(super) type Delays = Rc<RefCell<Vec<u32>>>;

/// Any gate, watched.
#[derive(Debug)]
pub(super) struct Watched {
    gate: AnyGate,
    delays: Delays,
    served: Option<Instant>,
}

impl Watched {
    pub(super) fn new(gate: AnyGate, delays: &Delays) -> Self {
        Self { gate, delays: Rc::clone(delays), served: None }
    }
}

impl Policy for Watched {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        self.gate.on_event(now, event)
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        // Each time that the gate asked for counts once, at the first call after it.
        if let Some(asked) = self.gate.poll_timeout()
            && asked <= now
            && self.served != Some(asked)
        {
            self.served = Some(asked);
            self.delays.borrow_mut().push(u32::try_from(now.since(asked).0).unwrap_or(u32::MAX));
        }
        self.gate.poll_decision(now)
    }

    fn set_leftovers(&mut self, used: bool) {
        self.gate.set_leftovers(used);
    }

    fn set_punctual(&mut self, punctual: bool) {
        self.gate.set_punctual(punctual);
    }

    fn set_switch_cost(&mut self, cost: divvy_policy::Nanos) {
        self.gate.set_switch_cost(cost);
    }

    fn balance(&self, client: ClientId) -> Option<i128> {
        self.gate.balance(client)
    }

    fn capped(&self) -> &[ClientId] {
        self.gate.capped()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.gate.poll_timeout()
    }
}

/// The delays in short. A delay beyond 4.2 s counts as that.
pub(super) fn summary(delays: &Delays, quantum_ns: u64) -> Lateness {
    let delays = delays.borrow();
    let values: Vec<f64> = delays.iter().map(|&ns| f64::from(ns)).collect();
    let over = delays.iter().filter(|&&ns| u64::from(ns) > quantum_ns).count();
    Lateness {
        median_ns: stats::quantile(&values, 0.5).unwrap_or(0.0) as u64,
        p99_ns: stats::quantile(&values, 0.99).unwrap_or(0.0) as u64,
        max_ns: delays.iter().copied().max().map_or(0, u64::from),
        over_quantum: over as f64 / delays.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_engine::policies::GateSpec;
    use divvy_policy::{ClientId, Nanos, Share};

    #[test]
    fn a_late_call_is_noted_once() {
        let spec = GateSpec { policy: "alps".into(), ..GateSpec::default() };
        let delays = Delays::default();
        let mut gate = Watched::new(spec.make().expect("a gate"), &delays);
        let (client, start) = (ClientId(0), Instant(1_000));
        gate.on_event(start, Event::Join { client, share: Share::ONE }).expect("new");
        gate.on_event(start, Event::Wake { client }).expect("there");
        while let Some(decision) = gate.poll_decision(start) {
            if let Gate::Measure { .. } = decision {
                gate.on_event(start, Event::Charge { client, used: Nanos::ZERO }).expect("there");
            }
        }
        delays.borrow_mut().clear();
        let asked = gate.poll_timeout().expect("a next quantum");
        assert_eq!(gate.poll_decision(Instant(asked.0 - 1)), None);
        assert!(delays.borrow().is_empty(), "a call that is early is not late");
        gate.poll_decision(asked + Nanos(700));
        gate.poll_decision(asked + Nanos(900));
        assert_eq!(*delays.borrow(), [700]);
        let late = summary(&delays, 500);
        assert_eq!((late.median_ns, late.max_ns, late.over_quantum), (700, 700, 1.0));
    }
}
