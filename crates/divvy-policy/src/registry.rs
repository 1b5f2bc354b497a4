//! What a policy tells about itself: name, parameters with ranges, cost, and the place it comes from.

/// Gate, dispatcher or model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Decides who may run for now ([`crate::Gate`]).
    Gate,
    /// Decides who runs next on a CPU ([`crate::Grant`]).
    Dispatcher,
    /// Says what each client is entitled to at every instant; grants nothing.
    Model,
}

/// One parameter of a policy, as a user may set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// As written in `policy:name=value`.
    pub name: &'static str,
    /// Values allowed, in words: `1ms to 10s`.
    pub range: &'static str,
    /// What it is when not given.
    pub default: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
}

/// One policy of the library, as `divvy policies` lists it. Every policy's module holds its own, named `INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// The name that users type.
    pub name: &'static str,
    /// Gate, dispatcher or model.
    pub kind: Kind,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Cost of one decision, n clients.
    pub complexity: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What can be set.
    pub params: &'static [ParamInfo],
}
