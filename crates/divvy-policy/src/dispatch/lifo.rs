//! `lifo`: whoever woke last runs. The example of `docs/new-policy.md`.
//!
//! **Problem.** The least that a dispatcher has to do. **Idea.** A stack. **Algorithm.** A client that wakes, or is put
//! back at the end of its slice, goes on top; the top runs. **Weak spots.** All others starve; shares have no effect.

use alloc::vec::Vec;

use super::dispatcher::{Dispatcher, Occasion, Pick, Rule, Slot, Table, policy};
use crate::{ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, Share, param};

/// Last come, first served; see the module.
#[derive(Clone, Debug)]
pub struct Lifo(Dispatcher<Stack>);

policy!(Lifo);

impl Listed for Lifo {
    const INFO: PolicyInfo = PolicyInfo {
        name: "lifo",
        summary: "last come, first served; shares have no effect",
        complexity: "O(n) to block, else O(1)",
        source: "docs/new-policy.md",
        params: &[param!(
            "quantum",
            Domain::Quantum(Nanos(1), Nanos::from_secs(1)),
            "10ms",
            "length of a slice"
        )],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (cpus, quantum) = (params.run().cpus, params.time("quantum")?);
        Self::INFO.check(cpus, &[("quantum", quantum.into())])?;
        Ok(Self(Dispatcher::new(Stack { quantum, clients: Table::new(), ready: Vec::new() }, cpus)))
    }
}

#[derive(Clone, Debug)]
struct Stack {
    quantum: Nanos,
    clients: Table<ClientId>,
    ready: Vec<Slot>,
}

impl Rule for Stack {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, _share: Share) {
        self.clients.put(slot, client);
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        if !busy {
            self.put_back(slot);
        }
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        self.ready.retain(|&other| other != slot);
    }

    fn reshare(&mut self, _slot: Slot, _share: Share) {}

    fn charge(&mut self, _slot: Slot, _used: Nanos) {}

    fn put_back(&mut self, slot: Slot) {
        self.ready.push(slot);
    }

    fn pick(&mut self, _occasion: Occasion) -> Option<Pick> {
        let slot = self.ready.pop()?;
        Some(Pick { slot, client: self.clients[slot], slice: self.quantum })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;
    use crate::{CpuId, Dispatch, Event, PolicyVisitor, Run};

    // The line in the list.
    crate::registry::dispatchers! {
        super::Lifo,
    }

    /// Two clients wake, one after the other, and run two slices.
    struct TwoSlices;

    impl PolicyVisitor for TwoSlices {
        type Output = [(ClientId, Nanos); 2];

        fn visit<P: Dispatch>(self, mut policy: P) -> Self::Output {
            for client in [ClientId(0), ClientId(1)] {
                policy.on_event(Instant::ZERO, Event::Join { client, share: Share::ONE }).unwrap();
                policy.on_event(Instant::ZERO, Event::Wake { client }).unwrap();
            }
            [(); 2].map(|()| {
                policy.on_event(Instant::ZERO, Event::Free { cpu: CpuId(0) }).unwrap();
                let grant = policy.poll_decision(Instant::ZERO).unwrap();
                (grant.client, grant.slice)
            })
        }
    }

    #[test]
    fn one_line_lists_it_and_makes_it() {
        assert_eq!(DISPATCHERS.len(), 1);
        let given = |name: &str, value: &str| [(String::from(name), String::from(value))];
        let params = Params::new(DISPATCHERS[0], Run::default(), given("quantum", "5ms")).unwrap();
        let last = (ClientId(1), Nanos::from_millis(5));
        assert_eq!(with(&params, TwoSlices), Ok(Some([last, last])));
        let error = Params::new(&Lifo::INFO, Run::default(), given("quanta", "5ms")).unwrap_err();
        assert_eq!(error.to_string(), "quanta: unknown parameter, expected one of quantum");
        let long = Params::new(&Lifo::INFO, Run::default(), given("quantum", "5s")).unwrap();
        let error = with(&long, TwoSlices).unwrap_err();
        assert_eq!(error.to_string(), "quantum: 5s is out of range, expected 1ns to 1s");
    }
}
