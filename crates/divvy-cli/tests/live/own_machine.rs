//! A machine of its own, which namespaces make of this one: what is installed, kept, run and killed there is seen by nobody else.

use std::process::{Command, Stdio};

use crate::harness::{Sandbox, eventually, skip};

/// Directories of its own: a copy of what is in `/etc`, and nothing in the others. `enough` waits until what runs has used a
/// second of CPU time.
const PRELUDE: &str = "\
set -eu
mkdir own && mount -t tmpfs none own && cp -a /etc own/etc && mkdir own/bin
mount --bind own/etc /etc && mount --bind own/bin /usr/local/bin
for dir in /home /run /var/log /var/lib /var/spool /var/tmp; do mount -t tmpfs none $dir; done
export PATH=/usr/local/bin:$PATH
set +e
ticks() { cat /proc/[0-9]*/stat 2>/dev/null | awk '/\\(sha256sum\\)/ { n += $14 + $15 } END { print n + 0 }'; }
enough() { end=$(($(ticks) + 100)); until [ $(ticks) -ge $end ]; do sleep 0.2; done; }
";
/// Stands between the outputs of two parts of a script.
const MARK: &str = "=== that was part";
const NAMESPACES: [&str; 5] = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];

pub struct OwnMachine {
    sandbox: Sandbox,
}

impl OwnMachine {
    /// With the programs under test in `target/release`, as if this were the repository. `None`, and a word why, where there can be
    /// none, or one of the `programs` is missing.
    pub fn new(test: &str, programs: &str) -> Option<Self> {
        let sandbox = Sandbox::shared(test)?;
        let probe = format!(
            "mkdir probe && mount -t tmpfs none probe && for program in {programs}; do \
             command -v $program || {{ echo no $program >&2; exit 1; }}; done"
        );
        let able = sandbox.command("unshare").args(NAMESPACES).args(["sh", "-c", &probe]).output();
        let able = able.expect("unshare");
        if !able.status.success() {
            let why = String::from_utf8_lossy(&able.stderr).into_owned();
            skip(test, &format!("no namespaces, or a program is missing: {}", why.trim()));
            return None;
        }
        let release = sandbox.path("target/release");
        std::fs::create_dir_all(&release).expect("a directory");
        for program in ["divvy", "divvyd"] {
            std::fs::copy(sandbox.program().with_file_name(program), release.join(program)).expect("copy");
        }
        Some(Self { sandbox })
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// What each part of a script prints, on both streams. The parts run in one shell, after the prelude.
    pub fn run(&self, parts: &[String]) -> Vec<String> {
        let mut script = PRELUDE.to_owned();
        parts.iter().for_each(|part| script.push_str(&format!("{part}echo '{MARK}'\n")));
        let script = self.sandbox.write("page.sh", &script);
        let printed = self.sandbox.path("printed");
        let file = std::fs::File::create(&printed).expect("a file");
        let errors = file.try_clone().expect("the same file");
        let mut command: Command = self.sandbox.command("unshare");
        command.args(NAMESPACES).arg("sh").arg(&script).stdout(Stdio::from(file)).stderr(errors);
        command.env_remove("DIVVY_SYSTEM_SOCKET").env_remove("DIVVY_RUNTIME_DIR");
        let mut machine = command.spawn().expect("start it");
        // Patience begins anew with whatever is printed.
        let mut seen = 0;
        let mut more = || {
            let length = std::fs::metadata(&printed).expect("a file").len();
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
        let printed = std::fs::read_to_string(printed).expect("what was printed");
        eprintln!("{printed}");
        assert!(status.success(), "{status}");
        let end = format!("{MARK}\n");
        let outputs: Vec<String> = printed.split(end.as_str()).take(parts.len()).map(str::to_owned).collect();
        assert_eq!(outputs.len(), parts.len(), "an output of each part");
        outputs
    }
}
