//! What a wrong scenario is answered: line, key, and what was expected.

use divvy_sim::policies::Policies;
use divvy_sim::scenario::{Format, Scenario};
use divvy_sim::simulate::simulate;
use divvy_sim::study::Study;

fn error(text: &str, format: Format) -> String {
    match Scenario::parse(text, format) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

/// Scenarios, and what is said of each.
const IN_TOML: &[(&str, &str)] = &[
    // Malformed.
    ("policy = \"rr\"\nshares = [1, 2", "line 2: unclosed array, expected `]`"),
    // Unknown keys.
    (
        "policy = \"rr\"\nshares = [1]\n[machine]\ncpsu = 2",
        "line 4: machine.cpsu: unknown field `cpsu`, expected one of `cpus`, `switch-cost`, `tick`, `on-block`, \
             `on-wake`",
    ),
    (
        "policy = \"rr\"\n[[users]]\nthink = { exponential = { mena = \"1s\" } }\nwork = { const = \"1s\" }",
        "line 3: users[0].think.exponential: unexpected keys in table: mena, available keys: mean",
    ),
    // Too much together, or too little to move time on.
    (
        "policy = \"rr\"\n[shares.random]\nclients = 4000000000\ntotal = 4294967295",
        "line 3: shares.random.clients: 4000000000, expected a whole number from 1 to 10000000",
    ),
    (
        "policy = \"rr\"\n[[clients]]\ncount = 10000000\n[[clients]]\ncount = 1",
        "line 5: clients[1].count: more than 10000000 clients in all",
    ),
    (
        "policy = \"rr\"\n[[clients]]\ncount = 6000000\nprogram = [{ run = \"1s\" }, { sleep = \"1s\" }]",
        "line 3: clients[0].count: more than 10000000 steps of programs in all",
    ),
    (
        "policy = \"rr\"\n[[users]]\nthink = { const = \"0\" }\nwork = { uniform = { low = \"0\", high = \"1ns\" } }",
        "run.resolution: 1ns, expected at most the mean of users[0].work, 0.0000000005 s: most of its times would be \
             cut down to 0",
    ),
    (
        "policy = \"rr\"\n[run]\nresolution = \"1h\"\n[[arrivals]]\nbetween = { exponential = { mean = \"1s\" } }\n\
             size = { const = \"1s\" }",
        "line 3: run.resolution: 1h, expected at most the mean of arrivals[0].between, 1 s: most of its times \
             would be cut down to 0",
    ),
    // Missing ones.
    ("shares = [1]", "policy: missing, expected a policy's name, or a gate's as gate"),
    (
        "policy = \"rr\"\ngate = \"exact\"\nshares = [1]",
        "line 1: policy: both policy and gate, expected one of them",
    ),
    (
        "policy = \"rr\"\nshares = [1]\n[kernel]\ntick = \"1ms\"",
        "line 3: kernel: has no meaning without gate: the policy is the kernel",
    ),
    (
        "gate = \"exact\"\nshares = [1]\n[machine]\nswitch-cost = \"1us\"",
        "line 3: machine: with a gate only cpus has a meaning; see kernel",
    ),
    (
        "gate = \"exact\"\nshares = [1]\n[kernel]\ntick = \"0\"",
        "line 4: kernel.tick: 0, expected more than 0",
    ),
    (
        "gate = \"exact\"\nshares = [1]\n[kernel]\nlatency = { low = \"1ms\" }",
        "line 4: kernel.latency.low: more than high",
    ),
    (
        "gate = \"exact\"\nshares = [1]\n[kernel]\ntikc = \"1ms\"",
        "line 4: kernel.tikc: unknown field `tikc`, expected one of `tick`, `placement`, `clock-lag`, `latency`, `costs`, \
             `steal`, `strangers`",
    ),
    ("policy = \"rr\"\n[[jobs]]\nat = \"1s\"", "line 2: jobs[0]: missing field `size`"),
    // The wrong kind.
    (
        "policy = \"rr\"\nshares = 3",
        "line 2: shares: invalid type: integer `3`, expected a list of shares, or a table with the key random",
    ),
    (
        "policy = \"rr\"\nshares = [1]\nquantum = 10",
        "line 3: quantum: 10 has no unit, expected a time such as \"4ms\" (units ns, us, ms, s, min, h)",
    ),
    (
        "policy = \"rr\"\nshares = [1]\nrun.until = \"-5s\"",
        "line 3: run.until: \"-5s\" is negative, expected a time such as \"4ms\" (units ns, us, ms, s, min, h)",
    ),
    // Impossible values.
    ("policy = \"rr\"\nshares = [3, 0, 1]", "line 2: shares[1]: 0: a share must be at least 1"),
    (
        "policy = \"rr\"\n[shares.random]\nclients = 16\ntotal = 8",
        "line 4: shares.random.total: S = 8 is less than N = 16, expected a share of at least 1 each",
    ),
    (
        "policy = \"rr\"\n\n[[clients]]\nshare = 2\n\n[[clients]]\nshare = 4294967296\n",
        "line 7: clients[1].share: 4294967296: a share must be at most 4294967295",
    ),
    (
        "policy = \"rr\"\nshares = [1]\nmachine = { cpus = 0 }",
        "line 3: machine.cpus: 0, expected a whole number from 1 to 4096",
    ),
    (
        "policy = \"rr\"\n[[arrivals]]\nbetween = { const = \"1s\" }\nsize = { bounded-pareto = { shape = 0.0, low = \
             \"1s\", high = \"2s\" } }",
        "line 4: arrivals[0].size.bounded-pareto.shape: 0 is out of range, expected a number greater than 0",
    ),
    (
        "policy = \"rr\"\n[[clients]]\nprogram = [{ run = \"0\" }]",
        "line 3: clients[0].program: takes no time, expected a step longer than 0",
    ),
    (
        "policy = \"rr\"\n",
        "nobody wants the CPU, expected shares, clients, users, arrivals, jobs, traces or events",
    ),
    (
        "policy = \"rr\"\nshares = [1]\n[run]\nuntil = \"1s\"\nquanta = 6",
        "line 5: run.quanta: both until and quanta, expected one of them",
    ),
    // Scripts that cannot be.
    (
        "policy = \"rr\"\nshares = [1]\n[[events]]\nat = \"1s\"\nop = \"wake\"\nclient = 1",
        "line 6: events[0].client: 1, expected a client's index, 0 to 0",
    ),
    (
        "policy = \"rr\"\nevents = [\n{ at = \"1s\", op = \"new\", client = 0 }]",
        "line 3: events[0].share: missing, expected a share of at least 1",
    ),
    (
        "policy = \"rr\"\nshares = [1]\nevents = [{ at = \"1s\", op = \"exit\", client = 0 },\n{ at = \"2s\", op = \
             \"wake\", client = 0 }]",
        "line 4: events[1].client: 0 has left by 2s",
    ),
    ("policy = \"rr:q\"\nshares = [1]", "line 1: policy: \"q\" has no value, expected key=value"),
];

#[test]
fn errors_of_toml() {
    for &(text, expected) in IN_TOML {
        assert_eq!(error(text, Format::Toml), expected, "{text}");
    }
}

#[test]
fn errors_of_json() {
    for (text, expected) in [
        ("{\"policy\": \"rr\",\n \"shares\": [1,}", "line 2: shares[1]: expected value"),
        (
            "{\"policy\": \"rr\",\n \"shares\": [1],\n \"machine\": {\n  \"cpsu\": 2}}",
            "line 4: machine.cpsu: unknown field `cpsu`, expected one of `cpus`, `switch-cost`, `tick`, `on-block`, \
             `on-wake`",
        ),
        ("{\"policy\": \"rr\",\n \"shares\": [1,\n 0]}", "line 3: shares[1]: 0: a share must be at least 1"),
        (
            "{\"policy\": \"rr\",\n \"shares\": [1],\n \"quantum\": \"4 parsecs\"}",
            "line 3: quantum: \"4 parsecs\" is not a time, expected a time such as \"4ms\" (units ns, us, ms, s, min, h)",
        ),
    ] {
        assert_eq!(error(text, Format::Json), expected, "{text}");
    }
}

#[test]
fn errors_of_policies_are_placed_like_others() {
    let run = |text: &str| {
        let scenario = Scenario::parse(text, Format::Toml).unwrap();
        match simulate(&scenario, 1, &[], &Policies) {
            Err(divvy_sim::simulate::SimError::Scenario(error)) => {
                error.located(text, Format::Toml).to_string()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        run("shares = [1]\npolicy = \"fifo\""),
        "line 2: policy.name: no policy is called \"fifo\", expected one of vtrr, pbs, wrr, drr, wfq, wf2q, stride, \
         lottery, fcfs, rr, las, mlfb, linux-2.2, eevdf"
    );
    assert_eq!(
        run("shares = [1]\n[policy]\nname = \"pbs\"\n[policy.params]\nalpha = \"much\""),
        "line 5: policy.params.alpha: \"much\", expected 1/16 to 16; with guard=study 0, -0, inf, and 2^-20 to 1024 of \
         either sign"
    );
    assert_eq!(
        run("shares = [1]\n[policy]\nname = \"rr\"\nparams = { alhpa = 1 }"),
        "line 4: policy.params.alhpa: unknown parameter, expected one of quantum, quanta"
    );
}

#[test]
fn errors_of_grids_name_the_point() {
    let study = |text: &str| {
        let scenario = Scenario::parse(text, Format::Toml).unwrap();
        Study::new(&scenario).unwrap_err().to_string()
    };
    assert_eq!(
        study("policy = \"rr\"\nshares = [1]\nsweep = { \"machine.cpus\" = [1, 0] }"),
        "sweep.machine.cpus: 0, expected a whole number from 1 to 4096 (with machine.cpus = 0)"
    );
    assert!(
        study("policy = \"rr\"\nshares = [1]\nsweep = { \"machine.cpsu\" = [1] }")
            .starts_with("sweep.machine.cpsu: unknown field `cpsu`")
    );
    assert_eq!(
        study("policy = \"rr\"\nshares = [1]\nsweep = { \"users[3].count\" = [1] }"),
        "sweep.users[3].count: there is no such key to vary"
    );
}
