//! The system's market, as users meet it: a real `divvyd --system`, and commands of several real users. They have no
//! accounts; what the kernel says of them is their number.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::accounts::nobody;
use crate::harness::{
    MAX_FRACTION_ERROR, Outcome, Running, SPIN, Sandbox, check_fractions, eventually, one_cpu,
};
use crate::system::{System, system_sandbox};

/// Users without accounts.
pub(crate) fn alice_uid() -> u32 {
    nobody(2)
}

pub(crate) fn bob_uid() -> u32 {
    nobody(3)
}

pub(crate) const ROOT: u32 = 0;

pub(crate) const USAGE: i32 = 2;
pub(crate) const FILE: i32 = 4;
pub(crate) const SYSTEM: i32 = 5;
pub(crate) const DENIED: i32 = 8;
pub(crate) const REFUSED: i32 = 9;
pub(crate) const NO_SUCH: i32 = 6;

/// The system's divvyd of a sandbox, and users who ask it by `divvy`.
pub(crate) struct Fair<'a> {
    sandbox: &'a Sandbox,
    _system: System<'a>,
}

impl<'a> Fair<'a> {
    pub(crate) fn open(sandbox: &'a Sandbox) -> Self {
        Self { sandbox, _system: System::start(sandbox, &policy(), &[]) }
    }

    /// Starts `divvy` with these words as arguments, as user `uid`.
    pub(crate) fn spawn(&self, uid: u32, words: &[&str]) -> Running {
        let mut command = self.sandbox.command_as(uid, self.sandbox.program());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { child: command.spawn().expect("start divvy") }
    }

    /// Runs `divvy` with these words as arguments, as user `uid`.
    pub(crate) fn run(&self, uid: u32, line: &str) -> Outcome {
        self.spawn(uid, &line.split_whitespace().collect::<Vec<_>>()).end()
    }

    /// Runs what must work, and gives back what it says.
    pub(crate) fn must(&self, uid: u32, line: &str) -> String {
        let outcome = self.run(uid, line);
        assert_eq!(outcome.code, Some(0), "divvy {line}: {}", outcome.stderr);
        String::from_utf8(outcome.stdout).expect("text").trim_end().to_owned()
    }

    pub(crate) fn json(&self, uid: u32, line: &str) -> Value {
        serde_json::from_str(&self.must(uid, &format!("{line} --json"))).expect("JSON")
    }

    /// Runs what must be refused with this code, in one line with these words, and change nothing.
    pub(crate) fn refuses(&self, uid: u32, line: &str, code: i32, words: &[&str]) {
        let before = self.kept();
        let outcome = self.run(uid, line);
        assert_eq!(outcome.code, Some(code), "divvy {line}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "one line: {}", outcome.stderr);
        for word in words {
            assert!(outcome.stderr.contains(word), "divvy {line}: no '{word}' in: {}", outcome.stderr);
        }
        assert_eq!(outcome.stdout, b"", "divvy {line}");
        assert_eq!(self.kept(), before, "divvy {line} changed something");
    }

    /// The market without what goes on by itself: who is awake, and what that is worth and achieved.
    fn kept(&self) -> Value {
        let mut graph = self.json(ROOT, "currency tree");
        for (list, members) in
            [("currencies", &["standing", "scheduled"][..]), ("tickets", &["active", "value"])]
        {
            for one in graph[list].as_array_mut().expect("a list") {
                members.iter().for_each(|member| drop(one.as_object_mut().expect("one").remove(*member)));
            }
        }
        graph
    }

    /// Waits until these currencies are worth so many base tickets of a resource (cpu is 0, disk 2). Who has just begun to
    /// compute may not have been seen yet.
    fn are_worth(&self, resource: usize, expected: &[(&str, &str)]) {
        let what = format!("{expected:?} of resource {resource}");
        eventually(&what, || {
            let all = self.json(ROOT, "currency ls");
            let worth = |name: &str| {
                let found = all.as_array().expect("currencies").iter().find(|c| c["name"] == name);
                found.and_then(|c| c["standing"][resource]["value"].as_str()).unwrap_or("none").to_owned()
            };
            expected.iter().all(|(name, value)| worth(name) == *value).then_some(())
        });
    }

    /// A client of user `uid` that computes.
    pub(crate) fn client(&self, uid: u32, name: &str) -> Running {
        // By its first word it is found again.
        let script = format!(": {name}; {SPIN}");
        let running = self.spawn(uid, &["run", "--name", name, "--", "sh", "-c", &script]);
        eventually("the client", || self.currency(name));
        running
    }

    /// The currency or client of which the market's name ends so.
    fn currency(&self, name: &str) -> Option<Value> {
        let all = self.json(ROOT, "currency ls");
        let all = all.as_array().expect("currencies");
        all.iter().find(|c| c["name"].as_str().is_some_and(|n| n.ends_with(&format!("/{name}")))).cloned()
    }

    /// The name of a user's own currency, which is there: users without accounts have their number in it.
    pub(crate) fn own(&self, uid: u32) -> String {
        let (all, name) = (self.json(ROOT, "currency ls"), format!("uid:{uid}"));
        let all = all.as_array().expect("currencies");
        assert!(all.iter().any(|c| c["name"] == name.as_str()), "no currency of user {uid}: {all:#?}");
        name
    }
}

fn policy() -> String {
    format!(
        "[users.{alice_uid}]\ncpu = 2000\n[users.{bob_uid}]\ncpu = 1000\n[scheduler]\ncpus = \"{}\"\n",
        one_cpu(),
        alice_uid = alice_uid(),
        bob_uid = bob_uid()
    )
}

#[test]
fn each_user_minds_its_own_currencies() {
    let Some(sandbox) = Sandbox::shared("each_user_minds_its_own_currencies") else { return };
    let fair = Fair::open(&sandbox);
    let said = fair.must(alice_uid(), "currency create build --mode 700");
    assert!(
        said.starts_with(&format!(
            "{alice_uid}/build: made, owner {alice_uid}, group {alice_uid}, mode fci------",
            alice_uid = alice_uid()
        )),
        "{said}"
    );
    let (build, alice) = (format!("{alice_uid}/build", alice_uid = alice_uid()), fair.own(alice_uid()));
    // Of her own she can give what she likes; under the name that is hers, or the one that all know.
    let said = fair.must(alice_uid(), &format!("fund build --from {alice} 300"));
    assert!(said.contains(&format!("300 soft cpu of {alice} for {build}")), "{said}");
    assert!(said.contains("worth nothing until"), "nobody computes: {said}");
    let ticket = fair.json(alice_uid(), &format!("reserve {build} --from {alice} --resource disk 100"));
    assert_eq!((&ticket["result"]["kind"], &ticket["result"]["amount"]), (&"hard".into(), &100.into()));
    // Bob can do nothing of it, and is told what it would take.
    let fund = format!("fund {build} --from {alice} 5");
    fair.refuses(bob_uid(), &fund, DENIED, &["not permitted", &build, "chmod"]);
    fair.refuses(
        bob_uid(),
        &format!("unfund {}", ticket["result"]["id"].as_str().unwrap()),
        DENIED,
        &["not permitted"],
    );
    fair.refuses(bob_uid(), &format!("currency destroy {build}"), DENIED, &["not permitted", &build]);
    fair.refuses(bob_uid(), &format!("currency chmod 777 {build}"), DENIED, &["not permitted"]);
    fair.refuses(
        bob_uid(),
        &format!("currency chown {bob_uid} {build}", bob_uid = bob_uid()),
        DENIED,
        &["not permitted"],
    );
    fair.refuses(
        bob_uid(),
        &format!("market bound {bob_uid} cpu:500", bob_uid = bob_uid()),
        DENIED,
        &["not permitted", "superuser"],
    );
    fair.refuses(bob_uid(), &format!("fund {alice} --from base 5"), DENIED, &["not permitted"]);
    // Nor can anybody do what cannot be.
    fair.refuses(alice_uid(), &format!("fund {alice} --from build 5"), REFUSED, &["a cycle"]);
    fair.refuses(alice_uid(), "currency create build", 2, &["already"]);
    fair.refuses(alice_uid(), "currency create 17", 2, &["17"]);
    // What is said to be done for a user who has none can be done.
    fair.refuses(0, "market explain uid:7777", NO_SUCH, &["`divvy currency create uid:7777`"]);
    assert!(fair.must(0, "currency create uid:7777").contains("made, owner 7777"));
    fair.refuses(alice_uid(), "unfund 4711.1", NO_SUCH, &["4711"]);
    fair.refuses(alice_uid(), "unfund build", NO_SUCH, &["divvy unfund build --from ISSUER"]);
    fair.refuses(alice_uid(), "currency destroy no-such", NO_SUCH, &["no-such"]);
    fair.refuses(alice_uid(), "exchange cancel 4711", NO_SUCH, &["4711"]);
    fair.refuses(alice_uid(), "exchange cancel --offer 4711", NO_SUCH, &["4711"]);
    fair.refuses(alice_uid(), "market explain no-such", NO_SUCH, &["no-such"]);
    fair.refuses(
        alice_uid(),
        &format!("reserve build --from {alice} --resource disk 901"),
        REFUSED,
        &["900"],
    );
    // What she permits, he can do: issue tickets of build to something of his own.
    assert!(fair.must(alice_uid(), "currency chmod 701 build").contains("mode fci-----i"));
    fair.must(bob_uid(), "currency create mine");
    fair.must(bob_uid(), &format!("fund mine --from {build} 7"));
    // Taken away by holder and issuer; what is not unique has to be named.
    fair.must(alice_uid(), &format!("fund build --from {alice} 1"));
    fair.refuses(alice_uid(), &format!("unfund build --from {alice}"), 2, &["2 cpu tickets", "--all"]);
    fair.must(alice_uid(), &format!("unfund build --from {alice} --all"));
    fair.refuses(alice_uid(), &format!("unfund build --from {alice}"), NO_SUCH, &["no cpu ticket"]);
    // Who did what: root sees all of it, bob his own.
    let entries = |uid| fair.json(uid, "market audit")["entries"].as_array().expect("entries").clone();
    let (all, bobs) = (entries(ROOT), entries(bob_uid()));
    assert!(
        bobs.iter().all(|e| e["uid"] == bob_uid()) && bobs.iter().any(|e| e["refused"].is_string()),
        "{bobs:#?}"
    );
    assert!(all.len() > bobs.len() && all.iter().any(|e| e["uid"] == alice_uid()), "{all:#?}");
    assert!(fair.must(ROOT, "market audit").contains("REFUSED: "));
    // Root can give it away, and end it.
    assert!(
        fair.must(ROOT, &format!("currency chown {bob_uid} {build}", bob_uid = bob_uid()))
            .contains(&format!("owner {bob_uid}", bob_uid = bob_uid()))
    );
    fair.must(bob_uid(), "currency destroy build");
    fair.refuses(alice_uid(), &format!("currency destroy {build}"), NO_SUCH, &[&build]);
}

#[test]
fn rights_are_exchanged_and_offers_wait_for_their_complement() {
    let Some(sandbox) = Sandbox::shared("rights_are_exchanged") else { return };
    let fair = Fair::open(&sandbox);
    let (mut a, mut b) = (fair.client(alice_uid(), "a"), fair.client(bob_uid(), "b"));
    let (alice, bob) = (fair.own(alice_uid()), fair.own(bob_uid()));
    let said = fair.must(alice_uid(), "exchange offer --give cpu:500 --want disk:400");
    assert!(
        said.contains(&format!("{alice} gives 500 cpu for 400 disk; it waits for its complement")),
        "{said}"
    );
    let waiting = fair.json(alice_uid(), "exchange ls")["offers"][0]["id"].to_string();
    // What waits is no exchange yet.
    let withdraw = format!("an offer that waits: to withdraw it, divvy exchange cancel --offer {waiting}");
    fair.refuses(alice_uid(), &format!("exchange cancel {waiting}"), NO_SUCH, &[&withdraw]);
    // At another rate it waits too, and is told what is in its way and how to take it up.
    let said = fair.must(bob_uid(), "exchange offer --give disk:300 --want cpu:500 --for 10m");
    let take = "divvy exchange offer --give disk:400 --want cpu:500";
    assert!(said.contains(&format!("to take up offer {waiting}: {take}")), "{said}");
    let own = said.split_whitespace().nth(1).unwrap().trim_end_matches(':').to_owned();
    assert!(said.contains(&format!("to withdraw yours: divvy exchange cancel --offer {own}")), "{said}");
    fair.refuses(alice_uid(), &format!("exchange cancel --offer {own}"), DENIED, &["not permitted"]);
    fair.must(bob_uid(), &format!("exchange cancel --offer {own}"));
    let said = fair.must(bob_uid(), take.trim_start_matches("divvy "));
    assert!(said.contains(&format!("{alice} gives 500 cpu to {bob} for 400 disk")), "{said}");
    // 2000 and 1000 before; disk was 1000 each.
    fair.are_worth(0, &[(&alice, "1500"), (&bob, "1500")]);
    fair.are_worth(2, &[(&alice, "1400"), (&bob, "600")]);
    let tree = fair.must(ROOT, "currency tree");
    assert!(tree.contains("-500 cpu for 400 disk") && tree.contains("+500 cpu for 400 disk"), "{tree}");
    assert!(tree.lines().all(|line| line.chars().count() <= 80), "{tree}");
    let said = fair.must(bob_uid(), &format!("market explain {bob}"));
    assert!(said.starts_with(&format!("{bob} is worth 1500 base tickets of cpu")), "{said}");
    assert!(said.contains("1000 base tickets") && said.contains("500: exchange "), "{said}");
    // More than there is, nobody can give.
    fair.refuses(bob_uid(), "exchange offer --give disk:601 --want cpu:1", REFUSED, &["does not have"]);
    fair.refuses(
        bob_uid(),
        &format!("exchange offer --give disk:1 --want cpu:1 --party {alice}"),
        DENIED,
        &["not permitted"],
    );
    // Either party ends it, and has what it had.
    let id = fair.json(ROOT, "exchange ls")["exchanges"][0]["id"].to_string();
    fair.must(bob_uid(), &format!("exchange cancel {id}"));
    fair.are_worth(0, &[(&alice, "2000"), (&bob, "1000")]);
    sandbox.kill_clients();
    let _ = (a.wait(), b.wait());
}

#[test]
fn a_nice_client_stays_small_and_every_value_is_explained() {
    let Some(sandbox) = Sandbox::shared("a_nice_client_stays_small") else { return };
    let fair = Fair::open(&sandbox);
    let mut running =
        [fair.client(alice_uid(), "big"), fair.client(alice_uid(), "small"), fair.client(bob_uid(), "other")];
    let alice = fair.own(alice_uid());
    let said = fair.must(alice_uid(), "nice small 100");
    assert!(said.contains(&format!("has 100 of {alice}'s cpu base tickets")), "{said}");
    let listed: Value = serde_json::from_str(&fair.must(alice_uid(), "ls --json")).unwrap();
    let share = |name: &str| {
        let mut clients = listed["clients"].as_array().unwrap().iter();
        clients.find(|client| client["name"].as_str().unwrap().ends_with(name)).unwrap()["share"].clone()
    };
    assert_eq!([share("/big"), share("/small")], [1, 100], "tickets, as after a restart");
    let uids = [alice_uid(), alice_uid(), bob_uid()];
    let names = uids.iter().zip(["small", "big", "other"]).map(|(uid, name)| format!("{uid}/{name}"));
    let names: Vec<String> = names.collect();
    let [small, big, other] = [&names[0], &names[1], &names[2]].map(String::as_str);
    fair.are_worth(0, &[(small, "100"), (big, "1900"), (other, "1000")]);
    let said = fair.must(alice_uid(), "market explain small");
    assert!(
        said.starts_with(&format!(
            "{alice_uid}/small is worth 100 base tickets of cpu",
            alice_uid = alice_uid()
        )),
        "{said}"
    );
    assert!(said.contains("└─ 100: "), "{said}");
    fair.refuses(bob_uid(), &format!("nice {big} 10"), DENIED, &["not permitted"]);
    // Its client is hers as well: others see it, and that is all.
    for what in ["pause", "detach", "set -s 9"] {
        fair.refuses(
            bob_uid(),
            &format!("{what} {big}"),
            DENIED,
            &[&format!("belongs to {}", alice_uid()), "ask its owner"],
        );
    }
    assert!(fair.must(bob_uid(), "ls").contains(big));
    let of = |user: u32| fair.must(bob_uid(), &format!("ls --user {user}"));
    assert!(of(alice_uid()).contains(small) && !of(alice_uid()).contains(other), "{}", of(alice_uid()));
    assert!(of(bob_uid()).contains(other) && !of(bob_uid()).contains(big), "{}", of(bob_uid()));
    assert_eq!(of(ROOT), "no clients of root");
    fair.refuses(bob_uid(), "ls --user no-such-user", NO_SUCH, &["knows no such user"]);
    // Drawn every way.
    let tree = fair.must(bob_uid(), "currency tree");
    for name in ["base", "big •", "small •", "other •"] {
        assert!(tree.contains(name), "{tree}");
    }
    let dot = fair.must(bob_uid(), &format!("currency tree {alice} --dot"));
    assert!(dot.starts_with("digraph market {") && dot.contains("/big") && !dot.contains("/other"), "{dot}");
    let picture = sandbox.path("picture.svg");
    fair.must(ROOT, &format!("currency tree --svg -o {}", picture.display()));
    assert!(std::fs::read_to_string(&picture).unwrap().contains("/small</text>"));
    fair.refuses(
        ROOT,
        "currency tree -o no-such-directory/tree",
        FILE,
        &["write no-such-directory/tree", "mkdir -p"],
    );
    // It ends, and what it had goes back.
    let process = sandbox.wait_for(1, ": small;").remove(0);
    kill_process(process.pid, Signal::KILL).expect("end it");
    eventually("small to leave", || fair.currency("small").is_none().then_some(()));
    fair.are_worth(0, &[(big, "2000"), (other, "1000")]);
    sandbox.kill_clients();
    running.iter_mut().for_each(|running| {
        let _ = running.wait();
    });
}

/// A run of user `uid`, with a table of its own in a directory of the user's.
fn share_as(sandbox: &Sandbox, uid: u32, words: &[&str]) -> Running {
    let own = sandbox.path(&format!("run-{uid}"));
    if std::fs::create_dir(&own).is_ok() {
        std::os::unix::fs::chown(&own, Some(uid), Some(uid)).expect("a directory of the user's");
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700)).expect("and nobody else's");
    }
    let mut command = sandbox.command_as(uid, sandbox.program());
    command.env("DIVVY_RUNTIME_DIR", &own).args(["share", "--json", "--cpus", &one_cpu()]).args(words);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running { child: command.spawn().expect("start divvy") }
}

/// Two runs of alice's, each paid by a currency of hers, at 3:1; the tasks of the first at 3:1 too: 9/16, 3/16 and 1/4.
#[test]
fn the_tasks_of_a_run_are_paid_by_a_currency() {
    let Some(sandbox) = Sandbox::shared("the_tasks_of_a_run_are_paid_by_a_currency") else { return };
    let fair = Fair::open(&sandbox);
    let share_as = |uid: u32, words: &[&str]| share_as(&sandbox, uid, words);
    let share = |words: &[&str]| share_as(alice_uid(), words);
    let refused = |words: &[&str], code: i32, why: &str| {
        let outcome = share(words).end();
        assert_eq!(outcome.code, Some(code), "{words:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{words:?}: {}", outcome.stderr);
    };
    refused(&["--from", "nothing", "1:true"], NO_SUCH, "nothing");
    refused(&["--from", "x", "--group", "y", "1:true"], USAGE, "cannot be used with");
    refused(&["--group", "y", "1:true"], USAGE, "give --from CURRENCY");
    for (currency, tickets) in [("tests", 300), ("docs", 100)] {
        fair.must(alice_uid(), &format!("currency create {currency} --mode 700"));
        let own = fair.own(alice_uid());
        fair.must(alice_uid(), &format!("fund {currency} --from {own} {tickets}"));
    }
    let other = share_as(bob_uid(), &["--from", &format!("{}/tests", alice_uid()), "1:sleep 60"]).end();
    assert_eq!(other.code, Some(DENIED), "bob may not: {}", other.stderr);
    let (a, b, c) = (format!("a=3:{SPIN}"), format!("b=1:{SPIN}"), format!("c=1:{SPIN}"));
    let docs = share(&["--from", "docs", "--for", "60s", &c]);
    eventually("the client", || fair.currency("c"));
    let tests = share(&["--from", "tests", "--for", "6s", &a, &b]).end();
    assert!(fair.currency("a").is_none() && fair.currency("c").is_some(), "its clients go with a run");
    docs.signal(Signal::TERM);
    let docs = docs.end();
    assert_eq!(docs.code, Some(143), "{}", docs.stderr);
    let report: Value = serde_json::from_slice(&tests.stdout).expect("a report");
    assert_eq!(tests.code, Some(0), "{}", tests.stderr);
    check_fractions(&report, &[0.75, 0.25]);
    let together = &report["together"];
    assert_eq!((&together["currency"], together.get("group")), (&"tests".into(), None), "{report}");
    for field in ["target_fraction", "achieved_fraction"] {
        let fraction = together[field].as_f64().expect("a number");
        assert!((fraction - 0.75).abs() <= MAX_FRACTION_ERROR, "{field}: {report}");
    }
}

/// The system's divvyd finds its clients again after a restart, and so does the run whose tasks they are.
#[test]
fn a_run_and_the_next_divvyd_find_each_other() {
    let Some(sandbox) = Sandbox::shared("a_run_and_the_next_divvyd_find_each_other") else { return };
    let fair = Fair::open(&sandbox);
    fair.must(alice_uid(), "currency create tests --mode 700");
    let own = fair.own(alice_uid());
    fair.must(alice_uid(), &format!("fund tests --from {own} 300"));
    let (a, b) = (format!("a=3:{SPIN}"), format!("b=1:{SPIN}"));
    let run = share_as(&sandbox, alice_uid(), &["--from", "tests", &a, &b]);
    let clients = |fair: &Fair<'_>| {
        let all = fair.json(ROOT, "ls");
        let all = all["clients"].as_array().expect("clients").iter();
        let mut names: Vec<String> = all.filter_map(|c| c["name"].as_str()).map(str::to_owned).collect();
        names.sort();
        names
    };
    let both = [format!("{}/a", alice_uid()), format!("{}/b", alice_uid())];
    eventually("both", || (clients(&fair) == both).then_some(()));
    // The run looks five times a second: by then it knows.
    let looks = || std::thread::sleep(std::time::Duration::from_secs(2));
    looks();
    drop(fair); // Killed outright.
    let fair = Fair::open(&sandbox);
    eventually("both again", || (clients(&fair) == both).then_some(()));
    looks();
    assert_eq!(clients(&fair), both, "neither twice nor gone");
    run.signal(Signal::TERM);
    let outcome = run.end();
    assert_eq!(outcome.code, Some(143), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("are clients of the next one"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("undivided"), "{}", outcome.stderr);
    eventually("nobody", || clients(&fair).is_empty().then_some(()));
}

/// What root attaches of a user's is the user's client, paid by the user, unless root says who else pays.
#[test]
fn root_attaches_for_whom_the_processes_are() {
    let Some(sandbox) = Sandbox::shared("root_attaches_for_whom_the_processes_are") else { return };
    let fair = Fair::open(&sandbox);
    let start = || {
        let mut command = sandbox.command_as(alice_uid(), "/bin/sh");
        Running { child: command.args(["-c", SPIN]).spawn().expect("start a shell") }
    };
    let (first, second) = (start(), start());
    fair.must(ROOT, &format!("attach --name hers {}", first.child.id()));
    let names = || -> Vec<String> {
        let all = fair.json(ROOT, "currency ls");
        let all = all.as_array().expect("currencies").iter();
        all.filter_map(|c| c["name"].as_str()).filter(|name| name.contains('/')).map(str::to_owned).collect()
    };
    assert_eq!(names(), [format!("{}/hers", alice_uid())]);
    fair.must(alice_uid(), "set hers -s 2");
    let outcome = fair.run(bob_uid(), &format!("set {}/hers -s 5", alice_uid()));
    assert_eq!(outcome.code, Some(DENIED), "{}", outcome.stderr);
    fair.must(ROOT, &format!("attach --from root --name ours {}", second.child.id()));
    assert!(names().contains(&"root/ours".to_owned()), "{:?}", names());
    let outcome = fair.run(alice_uid(), "set root/ours -s 5");
    assert_eq!(outcome.code, Some(DENIED), "{}", outcome.stderr);
    for process in [first, second] {
        process.signal(Signal::KILL);
        process.end();
    }
}

#[test]
fn a_sites_table_says_who_pays() {
    let Some(sandbox) = Sandbox::shared("a_sites_table_says_who_pays") else { return };
    let fair = Fair::open(&sandbox);
    assert!(fair.must(ROOT, "site show").starts_with("no table was given"));
    let [alice, bob] = [alice_uid(), bob_uid()];
    let good = format!("# as sacctmgr prints it\nroot|||1\nlab||root|1\nlab|{alice}||1\nlab|{bob}||4\n");
    let table = sandbox.write("table", &good);
    let sync = format!("site sync --table {} --tickets 500", table.display());
    assert!(
        fair.must(ROOT, &format!("{sync} --dry-run")).ends_with("1 account, 2 users; nothing was changed")
    );
    assert_eq!(fair.must(ROOT, &sync), "table 1: 1 account, 2 users, 16 changes");
    assert_eq!(fair.must(ROOT, &sync), "table 2: 1 account, 2 users, nothing has changed");
    // Two programs of two users, paid by the account: 1:4 of 500, whatever the policy gives the users themselves.
    let spawn = |uid: u32, name: &str| {
        let script = format!(": {name}; {SPIN}");
        let words = ["run", "--from", "site.lab", "--name", name, "--", "sh", "-c", &script];
        let running = fair.spawn(uid, &words);
        eventually("the client", || fair.currency(name));
        running
    };
    let mut running = [spawn(alice, "hers"), spawn(bob, "his")];
    fair.are_worth(0, &[(&format!("{alice}/hers"), "100"), (&format!("{bob}/his"), "400")]);
    // What is not the caller's, or not there, pays for nobody.
    let hers = format!("{alice}/site.lab");
    fair.refuses(bob, &format!("run --from {hers} -- true"), DENIED, &["not permitted", &hers]);
    fair.refuses(bob, "run --from nothing -- true", NO_SUCH, &["no currency or client is called 'nothing'"]);
    fair.refuses(bob, "currency create site.own", USAGE, &["begins as the names of a site's accounts do"]);
    fair.refuses(bob, &sync, DENIED, &["not permitted"]);
    sandbox.write("table", &format!("{good}lab||root|2\n"));
    fair.refuses(
        ROOT,
        &sync,
        FILE,
        &["line 6: account lab is in line 3 already", "the table that holds stays"],
    );
    let away = "site sync --sacctmgr /no/such/sacctmgr";
    fair.refuses(ROOT, away, SYSTEM, &["/no/such/sacctmgr show assoc", "the table that holds stays"]);
    fair.are_worth(0, &[(&format!("{alice}/hers"), "100"), (&format!("{bob}/his"), "400")]);
    // Whoever runs keeps what it has.
    sandbox.write("table", "");
    let said = fair.must(ROOT, &sync);
    assert!(
        said.contains(&format!("{hers}: not in the table any more; it ends with a table after")),
        "{said}"
    );
    fair.are_worth(0, &[(&format!("{alice}/hers"), "100"), (&format!("{bob}/his"), "400")]);
    for (word, running) in [": hers;", ": his;"].into_iter().zip(&mut running) {
        let process = sandbox.wait_for(1, word).remove(0);
        kill_process(process.pid, Signal::KILL).expect("end it");
        let _ = running.wait();
    }
    eventually("both to leave", || (fair.currency("hers").or(fair.currency("his"))).is_none().then_some(()));
    fair.must(ROOT, &sync);
    assert_eq!(fair.must(ROOT, "site show").lines().skip(1).collect::<Vec<_>>(), ["  root/site.root"]);
}

/// What was acknowledged is there when divvyd has been killed and another one begins; and who ran on is divided again.
#[test]
fn the_market_outlives_its_divvyd() {
    let Some(sandbox) = Sandbox::shared("the_market_outlives_its_divvyd") else { return };
    let fair = Fair::open(&sandbox);
    let mut client = fair.client(alice_uid(), "lasts");
    let (alice, lasts) = (fair.own(alice_uid()), format!("{alice_uid}/lasts", alice_uid = alice_uid()));
    fair.must(alice_uid(), "currency create build --mode 741");
    fair.must(alice_uid(), &format!("fund build --from {alice} 300"));
    fair.must(alice_uid(), "exchange offer --give cpu:5 --want disk:6 --for 1h");
    // Whoever is paused competes for nothing, but runs again when its divvyd has ended, and then does. That it was idle is on disk with what
    // is acknowledged next.
    fair.must(alice_uid(), "pause lasts");
    fair.are_worth(0, &[(&lasts, "0")]);
    fair.must(bob_uid(), "currency create mine");
    let before = fair.kept();
    drop(fair); // Killed outright.
    let fair = Fair::open(&sandbox);
    assert_eq!(fair.kept(), before);
    eventually("the client to be divided again", || fair.must(ROOT, "ls").contains(&lasts).then_some(()));
    fair.are_worth(0, &[(&lasts, "2000")]);
    assert_eq!(client.child.try_wait().expect("our child"), None);
    sandbox.kill_clients();
    let _ = client.wait();
}

/// What runs on a socket that anybody could have put there is told nothing.
#[test]
fn a_strangers_socket_is_not_asked() {
    let Some(theirs) = Sandbox::nobody("a_strangers_socket_is_not_asked") else { return };
    let mut client = theirs.start(&["run", "--", "sleep", "60"]);
    let socket = theirs.path("run/api.sock");
    eventually("their divvyd", || socket.exists().then_some(()));
    let ours = Sandbox::own();
    for (line, asked) in [
        ("currency ls", vec!["--system-socket"]),
        ("ls", vec!["--system-socket"]),
        ("explain 1", vec!["--system-socket"]),
        ("top --json", vec!["--system-socket"]),
    ] {
        let mut words: Vec<&str> = line.split_whitespace().chain(asked).collect();
        words.push(socket.to_str().unwrap());
        let outcome = ours.run(&words);
        assert_eq!(outcome.code, Some(5), "{line}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("is served by user 65534, who is neither root nor you"),
            "{}",
            outcome.stderr
        );
    }
    // They themselves may ask it: it keeps no market.
    let outcome = theirs.run(&["currency", "ls", "--system-socket", socket.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(7), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("divvyd --system"), "a fix: {}", outcome.stderr);
    theirs.kill_clients();
    let _ = client.wait();
}

#[test]
fn where_no_systems_divvyd_runs_that_is_said() {
    let sandbox = Sandbox::own();
    for line in
        ["currency ls", "market audit", "exchange ls", "site show", "ls --system", "set x -s 1 --system"]
    {
        let outcome = sandbox.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(7), "{line}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("the system's divvyd does not run"), "{}", outcome.stderr);
        let has_own = line.ends_with("--system");
        assert_eq!(outcome.stderr.contains("--own"), has_own, "{line}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("divvyd --system"), "a fix: {}", outcome.stderr);
    }
    // The others go on as ever, with one's own.
    let outcome = sandbox.run(&["run", "--", "true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let mut command = sandbox.divvy(&["ls"]);
    let output = command.env("DIVVY_MODE", "both").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("DIVVY_MODE=both: say user"));
}

/// Who had a divvyd of its own before there was a system's is shown the system's, and told where its own clients are.
#[test]
fn ones_own_divvyd_beside_the_systems_is_told_of() {
    let Some(sandbox) = system_sandbox("ones_own_divvyd_beside_the_systems_is_told_of") else { return };
    let mut client = sandbox.divvy(&["run", "--own", "--name", "mine", "--", "sleep", "60"]);
    let mut client = client.spawn().expect("start divvy");
    eventually("the client", || sandbox.run(&["ls", "--own"]).stdout.starts_with(b"client").then_some(()));
    let _system = System::start(&sandbox, "", &[]);
    let told =
        "divvy: a divvyd of your own runs beside the system's, and divides mine by itself: divvy ls --own\n";
    assert_eq!(sandbox.run(&["ls"]).stderr, told);
    for args in [&["ls", "--system"][..], &["ls", "--own"]] {
        assert_eq!(sandbox.run(args).stderr, "");
    }
    assert_eq!(sandbox.run(&["detach", "mine", "--own"]).code, Some(0));
    assert_eq!(sandbox.run(&["ls"]).stderr, "");
    sandbox.kill_clients();
    let _ = client.wait();
}

/// What a client is sure of here are hard tickets; `set` says what it has reserved, or taken back.
#[test]
fn what_a_client_reserves_is_said() {
    let Some(sandbox) = Sandbox::shared("what_a_client_reserves_is_said") else { return };
    let fair = Fair::open(&sandbox);
    let _client = fair.client(alice_uid(), "job");
    let said = fair.must(alice_uid(), "set job --system --reserve disk:30%,memory:20%");
    assert_eq!(said, format!("{}/job: share 1, reserved memory 20%, reserved disk 30%", alice_uid()));
    // Not only what was just asked for.
    let all = ", reserved cpu 10%, reserved memory 20%, reserved disk 30%";
    let said = fair.must(alice_uid(), "set job --system --reserve cpu:10%");
    assert_eq!(said, format!("{}/job: share 1{all}", alice_uid()));
    assert_eq!(fair.must(alice_uid(), "set job 2"), format!("{}/job: share 2{all}", alice_uid()));
    let said = fair.must(alice_uid(), "set job --system --reserve disk:none,cpu:none");
    assert_eq!(said, format!("{}/job: share 2, reserved memory 20%", alice_uid()));
}

/// Whoever tries to change another user's client is told of in the audit log.
#[test]
fn what_is_refused_of_anothers_client_is_in_the_audit_log() {
    let Some(sandbox) = Sandbox::shared("what_is_refused_of_anothers_client_is_in_the_audit_log") else {
        return;
    };
    let fair = Fair::open(&sandbox);
    let _client = fair.client(alice_uid(), "job");
    let job = format!("{}/job", alice_uid());
    let asked = [("set", " 3"), ("set", " --limit 50%"), ("pause", ""), ("resume", ""), ("detach", "")];
    for (ask, more) in asked {
        fair.refuses(bob_uid(), &format!("{ask} {job}{more}"), DENIED, &["belongs to"]);
    }
    fair.refuses(alice_uid(), "set jbo 3", NO_SUCH, &["; did you mean 'job'?"]);
    let told = eventually("five lines", || {
        let audit = fair.json(bob_uid(), "market audit");
        let told: Vec<(String, String)> =
            audit["entries"].as_array().expect("entries").iter().map(told_of).collect();
        (told.len() >= asked.len()).then_some(told)
    });
    let expected =
        asked.map(|(ask, _)| (format!("{ask} {job}"), format!("client '{job}' belongs to {}", alice_uid())));
    assert_eq!(told, expected);
    assert!(fair.must(ROOT, "market audit").contains(&format!(": detach client={job}  REFUSED: ")));
}

/// Who pauses a client, resumes it and lets it go is told of by number: its owner, or root.
#[test]
fn what_is_done_with_a_client_is_in_the_audit_log() {
    let Some(sandbox) = Sandbox::shared("what_is_done_with_a_client_is_in_the_audit_log") else { return };
    let fair = Fair::open(&sandbox);
    let _client = fair.client(alice_uid(), "job");
    let job = format!("{}/job", alice_uid());
    fair.must(alice_uid(), "pause job");
    fair.must(ROOT, &format!("resume {job}"));
    fair.must(ROOT, &format!("detach {job}"));
    let done = |entry: &Value| {
        let what = told_of(entry).0;
        let by_hand = ["pause ", "resume ", "detach "].iter().any(|ask| what.starts_with(ask));
        (by_hand && entry["refused"].is_null()).then(|| (entry["uid"].as_u64(), what))
    };
    let told = eventually("three lines", || {
        let audit = fair.json(ROOT, "market audit");
        let told: Vec<_> = audit["entries"].as_array().expect("entries").iter().filter_map(done).collect();
        (told.len() >= 3).then_some(told)
    });
    let expected = [
        (Some(alice_uid().into()), "pause job".to_owned()),
        (Some(ROOT.into()), format!("resume {job}")),
        (Some(ROOT.into()), format!("detach {job}")),
    ];
    assert_eq!(told, expected);
}

/// A user could not resume it: its shell stands.
#[test]
fn nobody_pauses_the_shell_that_asks() {
    let Some(sandbox) = Sandbox::shared("nobody_pauses_the_shell_that_asks") else { return };
    let fair = Fair::open(&sandbox);
    let _other = fair.client(alice_uid(), "other");
    let divvy = sandbox.program().display().to_string();
    let ask = |words: &str| {
        // Not what the client itself is, but what it has started: it would be held all the same.
        let script = format!("sh -c '{divvy} {words}'; exit $?");
        fair.spawn(alice_uid(), &["run", "--name", "shell", "--", "sh", "-c", &script]).end()
    };
    let outcome = ask("pause shell");
    assert_eq!(outcome.code, Some(DENIED), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("/shell' has the shell that asks: nobody would be left"),
        "{}",
        outcome.stderr
    );
    // One beside it is hers to pause; of two, the one that may be is paused, and the other one's code is told.
    let outcome = ask("pause shell other");
    assert_eq!(outcome.code, Some(DENIED), "{}", outcome.stderr);
    assert_eq!(
        String::from_utf8_lossy(&outcome.stdout),
        format!("{}/other: paused; its share goes to the others\n", alice_uid())
    );
    let outcome = ask("resume other");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

/// A client that left by itself, was let go, or was a run's: the scheduler says so, and who let it go has said so before.
#[test]
fn who_leaves_is_told_of_once() {
    let Some(sandbox) = Sandbox::shared("who_leaves_is_told_of_once") else { return };
    let fair = Fair::open(&sandbox);
    let _client = fair.client(alice_uid(), "job");
    fair.must(alice_uid(), "detach job");
    let share = ["share", "--quiet", "--from", &format!("uid:{}", alice_uid()), "1:sleep 1"];
    let outcome = fair.spawn(ROOT, &share).end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // What is refused is written with what comes after it, or within a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let audit = fair.must(ROOT, "market audit");
    let left: Vec<&str> = audit.lines().filter(|line| line.contains(": leave ")).collect();
    assert!(left.len() >= 2 && !left.iter().any(|line| line.contains("REFUSED")), "{audit}");
}

/// What an entry of the audit log says was asked of which client, and why it was refused.
fn told_of(entry: &Value) -> (String, String) {
    let word = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
    (format!("{} {}", word(&entry["what"]["ask"]), word(&entry["what"]["client"])), word(&entry["refused"]))
}
