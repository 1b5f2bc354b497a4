//! docs/admin.md, as a new administrator follows it: every command, with the paths that it names, as root of a machine of
//! its own, which namespaces make: what is installed, kept, run and killed there is seen by nobody else.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::harness::{MAX_FRACTION_ERROR, Sandbox, eventually, on_our_cpu, skip};

const PAGE: &str = include_str!("../../../../docs/admin.md");

/// Directories of its own: a copy of what is in `/etc`, and nothing in the others. `enough` waits until what runs has used a
/// second of CPU time.
const MACHINE: &str = "\
set -eu
mkdir own && mount -t tmpfs none own && cp -a /etc own/etc && mkdir own/bin
mount --bind own/etc /etc && mount --bind own/bin /usr/local/bin
for dir in /home /run /var/log /var/lib /var/tmp; do mount -t tmpfs none $dir; done
export PATH=/usr/local/bin:$PATH
set +e
ticks() { cat /proc/[0-9]*/stat 2>/dev/null | awk '/\\(sha256sum\\)/ { n += $14 + $15 } END { print n + 0 }'; }
enough() { end=$(($(ticks) + 100)); until [ $(ticks) -ge $end ]; do sleep 0.2; done; }
";
/// Stands between the outputs of two blocks.
const MARK: &str = "=== that was block";

/// A block of the page: what it is marked as, and its text.
#[derive(Clone, Copy, Debug)]
struct Block {
    kind: &'static str,
    text: &'static str,
}

fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    let mut rest = PAGE;
    while let Some((_, block)) = rest.split_once("```") {
        let (kind, after) = block.split_once('\n').expect("a block begins with a line of its own");
        let (text, after) = after.split_once("```").expect("a block ends");
        found.push(Block { kind, text });
        rest = after;
    }
    found
}

/// The line, with every number a `#`, however it is drawn.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut in_number = false;
    for c in line.chars() {
        let c = match c {
            '├' => '└',
            '│' => ' ',
            '0'..='9' => '#',
            c => c,
        };
        let part = c == '#' || (in_number && c == '.');
        if !(part && in_number) {
            shape.push(c);
        }
        in_number = part;
    }
    shape.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of a row of a table: requested, effective, achieved, in percent.
fn percents(line: &str) -> Option<[f64; 3]> {
    let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "client").collect();
    let numbers: Option<Vec<f64>> =
        words.iter().rev().take(3).rev().map(|w| w.parse().ok().filter(|_| w.contains('.'))).collect();
    numbers.and_then(|numbers| numbers.try_into().ok())
}

/// What a block printed is what the page says: the same lines, in any order, with the same shares; and what was achieved is
/// as near to it as anywhere.
fn check(shown: &str, printed: &str) {
    let sorted = |text: &str| {
        let mut lines: Vec<(String, String)> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| (shape(line), line.to_owned()))
            .collect();
        lines.sort();
        lines
    };
    let (shown, printed) = (sorted(shown), sorted(printed));
    let shapes = |lines: &[(String, String)]| lines.iter().map(|l| l.0.clone()).collect::<Vec<_>>();
    assert_eq!(shapes(&shown), shapes(&printed), "printed: {printed:#?}");
    for ((_, shown), (_, printed)) in shown.iter().zip(&printed) {
        let (Some(shown_parts), Some(parts)) = (percents(shown), percents(printed)) else { continue };
        for k in [0, 1] {
            assert!((shown_parts[k] - parts[k]).abs() < 0.011, "the page: {shown}\nprinted: {printed}");
        }
        let off = (shown_parts[1] - parts[2]).abs() / 100.0;
        assert!(off <= MAX_FRACTION_ERROR, "achieved {} of {}: {printed}", parts[2], shown_parts[1]);
    }
}

#[test]
fn a_new_administrator_follows_the_page() {
    const TEST: &str = "a_new_administrator_follows_the_page";
    let Some(sandbox) = Sandbox::shared(TEST) else { return };
    let own_machine = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let probe = "mkdir probe && mount -t tmpfs none probe && for program in useradd runuser pkill; do \
                 command -v $program || { echo no $program >&2; exit 1; }; done";
    let able = sandbox.command("unshare").args(own_machine).args(["sh", "-c", probe]).output();
    let able = able.expect("unshare");
    if !able.status.success() {
        let why = String::from_utf8_lossy(&able.stderr).into_owned();
        return skip(TEST, &format!("no namespaces, or a program is missing: {}", why.trim()));
    }
    let release = sandbox.path("target/release");
    std::fs::create_dir_all(&release).expect("a directory");
    for program in ["divvy", "divvyd"] {
        std::fs::copy(sandbox.program().with_file_name(program), release.join(program)).expect("copy");
    }
    let blocks = blocks();
    let commands = blocks.iter().filter(|block| block.kind == "sh");
    let mut script = MACHINE.to_owned();
    // The page waits for numbers that are as good as those it shows; here for what the tolerance needs, however busy it is.
    let here = |text: &str| on_our_cpu(text).replace("sleep 10\n", "enough\n");
    commands.clone().for_each(|block| script.push_str(&format!("{}echo '{MARK}'\n", here(block.text))));
    let script = sandbox.write("page.sh", &script);
    let printed = std::fs::File::create(sandbox.path("printed")).expect("a file");
    let errors = printed.try_clone().expect("the same file");
    let mut command = sandbox.command("unshare");
    command.args(own_machine).arg("sh").arg(&script).stdout(Stdio::from(printed)).stderr(errors);
    command.env_remove("DIVVY_SYSTEM_SOCKET").env_remove("DIVVY_RUNTIME_DIR");
    let mut machine = command.spawn().expect("start it");
    // Patience begins anew with whatever is printed.
    let mut seen = 0;
    let mut more = || {
        let length = std::fs::metadata(sandbox.path("printed")).expect("a file").len();
        let ended = machine.try_wait().expect("our child");
        let more = ended.is_some() || length > seen;
        seen = length;
        more.then_some(ended)
    };
    let status = loop {
        if let Some(status) = eventually("more of the page", &mut more) {
            break status;
        }
    };
    let printed = std::fs::read_to_string(sandbox.path("printed")).expect("what was printed");
    eprintln!("{printed}");
    assert!(status.success(), "{status}");
    let end = format!("{MARK}\n");
    let mut outputs = printed.split(end.as_str());
    // What stands below a block is what that block prints; where nothing stands there, it prints nothing.
    for (k, block) in blocks.iter().enumerate().filter(|(_, block)| block.kind == "sh") {
        let output = outputs.next().expect("an output of each block");
        match blocks.get(k + 1).filter(|next| next.kind == "text") {
            Some(shown) => check(shown.text, output),
            None if block.text.contains("audit") => assert!(output.lines().count() >= 3, "{output}"),
            None => assert_eq!(output, "", "after {}", block.text),
        }
    }
    assert!(commands.count() >= 8, "{blocks:#?}");
}

/// What the page does with systemd cannot be done here; that its files are what systemd takes can be seen.
#[test]
fn the_units_of_the_page_are_what_systemd_takes() {
    const TEST: &str = "the_units_of_the_page_are_what_systemd_takes";
    let block = blocks().into_iter().find(|block| block.kind == "sh systemd").expect("the block for systemd");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let units: Vec<_> =
        block.text.split_whitespace().filter(|word| word.starts_with("dist/systemd/")).collect();
    assert_eq!(units.len(), 2, "{}", block.text);
    for unit in &units {
        let mode = std::fs::metadata(root.join(unit)).expect(unit).permissions().mode();
        assert_eq!(mode & 0o111, 0, "{unit} is no program");
    }
    let verify = std::process::Command::new("systemd-analyze")
        .arg("verify")
        .args(units.iter().map(|unit| root.join(unit)))
        .output();
    let Ok(verify) = verify else { return skip(TEST, "no systemd-analyze") };
    let said = String::from_utf8_lossy(&verify.stderr);
    // What the units name is not installed here.
    const NOT_INSTALLED: [&str; 2] = ["is not executable", "Command 'man divvyd(1)' failed"];
    let complaints: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("divvyd.") && !NOT_INSTALLED.iter().any(|part| line.contains(part)))
        .collect();
    assert_eq!(complaints, [] as [&str; 0], "{said}");
}
