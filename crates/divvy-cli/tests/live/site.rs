//! Exchanges over nodes: two divvyds, each with a machine of its own as far as it knows, and the site's dealer.

use std::process::Stdio;

use rustix::fs::{Gid, Uid};
use serde_json::Value;

use crate::accounts::nobody;
use crate::follow::commands;
use crate::harness::{Running, Sandbox, eventually, one_cpu};
use crate::own_machine::OwnMachine;
use crate::page::check;
use crate::system::System;

/// The machine of docs/market.md: two users, and two nodes that know them.
const NODES: &str = "\
cp target/release/* /usr/local/bin/
useradd alice && useradd bob
mkdir -p /run/divvy/nodes
for node in n1 n2; do
    divvyd --system --run-dir /run/divvy/$node --state-dir /var/lib/divvy-$node 2> $node.log &
    until [ -S /run/divvy/$node/api.sock ]; do sleep 0.1; done
    ln -s /run/divvy/$node/api.sock /run/divvy/nodes/$node.sock
    for user in alice bob; do
        runuser -u $user -- divvy currency create mine --system-socket /run/divvy/nodes/$node.sock
    done > /dev/null
done
";

fn alice() -> u32 {
    nobody(2)
}

fn bob() -> u32 {
    nobody(3)
}

fn carol() -> u32 {
    nobody(4)
}

struct Site<'a> {
    nodes: [System<'a>; 2],
    sandbox: &'a Sandbox,
}

impl Site<'_> {
    fn divvy(&self, uid: u32, node: usize, line: &str) -> String {
        let mut command = self.sandbox.command_as(uid, self.sandbox.program());
        command.args(line.split_whitespace()).arg("--system-socket").arg(&self.nodes[node].socket);
        let done = command.output().expect("start divvy");
        assert!(done.status.success(), "divvy {line}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    }

    /// What a user has a right to on a node, of a thousand.
    fn requested(&self, node: usize, uid: u32) -> u64 {
        let list: Value = serde_json::from_str(&self.divvy(0, node, "currency ls --json")).expect("JSON");
        let rows = list.as_array().expect("currencies");
        let own = rows.iter().find(|row| row["name"] == format!("uid:{uid}")).expect("the user's own");
        let cpu = &own["standing"][0];
        (cpu["requested"].as_f64().expect("a number") * 1000.0).round() as u64
    }

    fn eventually(&self, what: &str, expected: [[u64; 3]; 2]) {
        let of = |node: usize| [alice(), bob(), carol()].map(|uid| self.requested(node, uid));
        eventually(what, || ([of(0), of(1)] == expected).then_some(()));
    }

    fn dealer(&self) -> Running {
        let mut command = self.sandbox.command(self.sandbox.program());
        command.args(["site", "market", "--lease", "2s", "--nodes"]).arg(self.sandbox.path("nodes"));
        command
            .arg("--offers")
            .arg(self.sandbox.path("offers"))
            .arg("--log")
            .arg(self.sandbox.path("dealer"));
        command.stdout(Stdio::null());
        Running { child: command.spawn().expect("start the dealer") }
    }

    fn offer(&self, uid: u32, text: &str) {
        let path = self.sandbox.path("offers").join(uid.to_string());
        let made = self.sandbox.path(&format!("offer-{uid}"));
        std::fs::write(&made, text).expect("write");
        rustix::fs::chown(&made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).expect("root may");
        std::fs::rename(&made, path).expect("the same file system");
    }
}

fn end(mut running: Running) {
    running.child.kill().expect("our child");
    running.child.wait().expect("our child");
}

/// 300 of alice's 1000 on one node for 300 of bob's on the other; carol, who takes no part, keeps her third of each.
#[test]
fn users_trade_over_nodes_and_a_lost_node_ends_it() {
    const BEFORE: [[u64; 3]; 2] = [[333; 3]; 2];
    const TRADED: [[u64; 3]; 2] = [[233, 433, 333], [433, 233, 333]];
    let test = "users_trade_over_nodes_and_a_lost_node_ends_it";
    let (Some(one), Some(two)) = (Sandbox::shared(test), Sandbox::shared(test)) else { return };
    let policy = format!("[scheduler]\ncpus = \"{}\"\n", one_cpu());
    let nodes = [System::start(&one, &policy, &[]), System::start(&two, &policy, &[])];
    let mut site = Site { nodes, sandbox: &one };
    for (node, uid) in [0, 1].into_iter().flat_map(|node| [alice(), bob(), carol()].map(|uid| (node, uid))) {
        // The first that a user makes comes with the user's own.
        site.divvy(uid, node, "currency create mine");
    }
    std::fs::create_dir(one.path("offers")).expect("a directory");
    let sockets = [&site.nodes[0].socket, &site.nodes[1].socket].map(|path| path.display().to_string());
    one.write("nodes", &format!("[nodes]\nn1 = \"{}\"\nn2 = \"{}\"\n", sockets[0], sockets[1]));
    let dealer = site.dealer();
    site.offer(alice(), "cpu:300@n1 for cpu:300@n2\n");
    site.offer(bob(), "cpu:300@n2 for cpu:300@n1\n");
    site.eventually("the exchange", TRADED);
    // A dealer that was killed goes on where it was; without one, both legs end.
    end(dealer);
    let dealer = site.dealer();
    site.eventually("the exchange after a restart of the dealer", TRADED);
    end(dealer);
    let log = std::fs::read_to_string(one.path("dealer")).expect("a log");
    assert_eq!(log.matches("\"matched\"").count(), 1, "{log}");
    site.eventually("the lease to end", BEFORE);
    // A node that is lost ends the other's leg; when it comes back, the offers that still lie there are matched again.
    let dealer = site.dealer();
    site.eventually("the exchange again", TRADED);
    site.nodes[1].child.kill().expect("our child");
    site.nodes[1].child.wait().expect("our child");
    eventually("the other node's leg to end", || (site.requested(0, alice()) == 333).then_some(()));
    site.nodes[1] = System::start(&two, &policy, &[]);
    site.eventually("the exchange once more", TRADED);
    // Whoever takes the offer back ends it.
    std::fs::remove_file(one.path("offers").join(alice().to_string())).expect("it is there");
    site.eventually("the end", BEFORE);
    end(dealer);
}

/// The commands of docs/market.md, with the paths that they name.
#[test]
fn the_exchange_of_the_page_is_made() {
    const PAGE: &str = include_str!("../../../../docs/market.md");
    let Some(machine) = OwnMachine::new("the_exchange_of_the_page_is_made", "useradd runuser") else {
        return;
    };
    let blocks = commands(PAGE);
    let mut parts = vec![NODES.to_owned()];
    parts.extend(blocks.iter().map(|(block, _)| block.text.to_owned()));
    // The dealer goes on; what it says comes when it has done it.
    let last = parts.last_mut().expect("commands");
    last.push_str("until grep -q 'in effect' printed; do sleep 0.1; done\n");
    let printed = machine.run(&parts);
    assert_eq!(printed[0], "");
    for ((block, shown), printed) in blocks.iter().zip(&printed[1..]) {
        check(shown.unwrap_or_default(), printed).unwrap_or_else(|why| panic!("after\n{}{why}", block.text));
    }
    assert_eq!(blocks.len(), 2, "{blocks:#?}");
}
