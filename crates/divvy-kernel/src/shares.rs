//! Who the clients are, and their shares: from a file, or from the weights of cgroups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cgroup;
use crate::failure::{ABSENT, FILE, Failure, OrFail as _, SYSTEM};

/// The largest share: with it, every product in `bpf/core.h` stays within 64 bits.
pub const SHARE_MAX: u64 = 1_000_000;
/// Clients beside the one that everybody else is.
pub const CLIENTS_MAX: usize = 1023;
/// The share of everybody else where nothing else is said: a cgroup's weight where nothing else is said.
const REST: u64 = 100;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 31;

/// A file of shares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "rest")]
    rest: u64,
    #[serde(default)]
    client: Vec<Entry>,
}

fn rest() -> u64 {
    REST
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    share: u64,
    cgroup: Option<String>,
    pid: Option<i32>,
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Whoever is nobody else's.
    Rest,
    /// A cgroup with all below it.
    Cgroup(PathBuf),
    /// A process, those that descended from it, and their children to come.
    Process(i32),
    /// Nobody any more: its cgroup is gone, and its number may be another's.
    Gone,
}

/// One of those that divide the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// What it is called.
    pub name: String,
    /// Its share, 1 to [`SHARE_MAX`].
    pub share: u64,
    /// Who it is.
    pub who: Who,
}

/// Where clients and shares come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// The cgroups in this one.
    Weights(PathBuf),
}

impl Source {
    /// The clients as they are now; the first is everybody else.
    ///
    /// # Errors
    /// A file that cannot be read or is not what it should be, or whose cgroups or processes are not there.
    pub fn read(&self) -> Result<Vec<Client>, Failure> {
        match self {
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("read {}", path.display()))
                    .or_fail(FILE)?;
                let root = cgroup::mount().or_fail(SYSTEM)?;
                let clients =
                    parse(&text, &root).with_context(|| path.display().to_string()).or_fail(FILE)?;
                for client in &clients {
                    check_exists(client, &root)
                        .with_context(|| path.display().to_string())
                        .or_fail(ABSENT)?;
                }
                Ok(clients)
            }
            Self::Weights(name) => {
                let root = cgroup::mount().or_fail(SYSTEM)?;
                weights(&root, &name.to_string_lossy()).or_fail(ABSENT)
            }
        }
    }
}

impl Source {
    /// The weight of the cgroup whose children are the clients, which all of them together have against everybody else;
    /// `None` where shares are a file's, or there is no such weight (the root).
    #[must_use]
    pub fn weight_of_all(&self) -> Option<u64> {
        let Self::Weights(name) = self else { return None };
        let dir = cgroup::directory(&cgroup::mount().ok()?, &name.to_string_lossy()).ok()?;
        cgroup::weight(&dir).ok()
    }
}

fn check_exists(client: &Client, root: &Path) -> Result<()> {
    match &client.who {
        Who::Rest | Who::Gone => {}
        Who::Cgroup(dir) => {
            let name = format!("/{}", dir.strip_prefix(root).unwrap_or(dir).display());
            cgroup::directory(root, &name).with_context(|| format!("client {}", client.name))?;
        }
        Who::Process(pid) => {
            ensure!(
                Path::new("/proc").join(pid.to_string()).exists(),
                "client {}: there is no process {pid}",
                client.name
            );
        }
    }
    Ok(())
}

fn parse(text: &str, root: &Path) -> Result<Vec<Client>> {
    let file: File = toml::from_str(text).context("it is no file of shares")?;
    let check = |name: &str, share: u64| {
        ensure!(
            (1..=SHARE_MAX).contains(&share),
            "client {name}: share {share} is not within 1 to {SHARE_MAX}"
        );
        Ok(())
    };
    check("rest", file.rest)?;
    ensure!(!file.client.is_empty(), "it has no [[client]]");
    ensure!(file.client.len() <= CLIENTS_MAX, "{} clients; there can be {CLIENTS_MAX}", file.client.len());
    let mut clients = vec![Client { name: "rest".to_owned(), share: file.rest, who: Who::Rest }];
    let mut known = BTreeMap::from([("rest".to_owned(), ())]);
    let mut whose: Vec<(Who, String)> = Vec::new();
    for Entry { name, share, cgroup, pid } in file.client {
        check(&name, share)?;
        let printable = !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(char::is_control);
        ensure!(printable, "client {name:?}: a name is 1 to {NAME_MAX} bytes without control characters");
        ensure!(known.insert(name.clone(), ()).is_none(), "two clients are called {name}");
        let who = match (cgroup, pid) {
            (Some(path), None) => {
                ensure!(
                    path.starts_with('/'),
                    "client {name}: cgroup {path}: give its path from the root, such as /build"
                );
                let path = path.trim_matches('/');
                ensure!(
                    !path.split('/').any(|part| part == ".."),
                    "client {name}: cgroup /{path}: give it without .."
                );
                ensure!(!path.is_empty(), "client {name}: the root is everybody: give a cgroup below it");
                Who::Cgroup(root.join(path))
            }
            (None, Some(pid)) => {
                ensure!(pid > 0, "client {name}: pid {pid} is no process");
                Who::Process(pid)
            }
            _ => anyhow::bail!("client {name}: give either cgroup = \"/PATH\" or pid = N"),
        };
        if let Some((_, other)) = whose.iter().find(|(known, _)| *known == who) {
            anyhow::bail!("client {name} is who client {other} is: give each its own cgroup or pid");
        }
        whose.push((who.clone(), name.clone()));
        clients.push(Client { name, share, who });
    }
    Ok(clients)
}

/// The cgroups in one as clients, with their weights as shares.
fn weights(root: &Path, name: &str) -> Result<Vec<Client>> {
    let dir = cgroup::directory(root, name)?;
    let mut clients = vec![Client { name: "rest".to_owned(), share: REST, who: Who::Rest }];
    let children = cgroup::children(&dir);
    ensure!(
        children.len() <= CLIENTS_MAX,
        "cgroup {name}: {} cgroups; there can be {CLIENTS_MAX} clients",
        children.len()
    );
    for child in children {
        let full = child.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut name = full.clone();
        while name.len() > NAME_MAX {
            name.pop();
        }
        // One that goes meanwhile is no client.
        match cgroup::weight(&child) {
            Ok(share) => clients.push(Client { name, share, who: Who::Cgroup(child) }),
            Err(e) if child.exists() => return Err(e),
            Err(_) => {}
        }
    }
    Ok(clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_clients() {
        let text = "rest = 7\n[[client]]\nname = \"b\"\nshare = 3\ncgroup = \"/a/b/\"\n[[client]]\nname = \"c\"\nshare = 1\npid = 9\n";
        let clients = parse(text, Path::new("/cg")).expect("clients");
        let client = |name: &str, share, who| Client { name: name.to_owned(), share, who };
        let want = [
            client("rest", 7, Who::Rest),
            client("b", 3, Who::Cgroup(PathBuf::from("/cg/a/b"))),
            client("c", 1, Who::Process(9)),
        ];
        assert_eq!(clients, want);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (text, why) in [
            ("", "it has no [[client]]"),
            ("[[client]]\nname = \"b\"\nshare = 0\npid = 1", "client b: share 0 is not within 1 to 1000000"),
            ("rest = 0\n[[client]]\nname = \"b\"\nshare = 1\npid = 1", "client rest: share 0"),
            ("[[client]]\nname = \"b\"\nshare = 1", "client b: give either cgroup"),
            ("[[client]]\nname = \"b\"\nshare = 1\npid = 1\ncgroup = \"/a\"", "client b: give either cgroup"),
            (
                "[[client]]\nname = \"b\"\nshare = 1\ncgroup = \"a\"",
                "client b: cgroup a: give its path from the root",
            ),
            ("[[client]]\nname = \"b\"\nshare = 1\ncgroup = \"/\"", "client b: the root is everybody"),
            ("[[client]]\nname = \"b\"\nshare = 1\npid = -1", "client b: pid -1 is no process"),
            ("[[client]]\nname = \"rest\"\nshare = 1\npid = 1", "two clients are called rest"),
            (
                "[[client]]\nname = \"b\"\nshare = 1\ncgroup = \"/a/../b\"",
                "client b: cgroup /a/../b: give it without ..",
            ),
            (
                "[[client]]\nname = \"a\"\nshare = 1\ncgroup = \"/x//y\"\n[[client]]\nname = \"b\"\nshare = 1\ncgroup = \"/x/y/\"",
                "client b is who client a is",
            ),
            (
                "[[client]]\nname = \"a\"\nshare = 1\npid = 3\n[[client]]\nname = \"b\"\nshare = 1\npid = 3",
                "client b is who client a is",
            ),
            ("[[client]]\nname = \"\"\nshare = 1\npid = 1", "client \"\": a name is 1 to 31 bytes"),
            ("[[client]]\nname = \"b\"\nshare = 1\npid = 1\nnice = 3", "it is no file of shares: "),
        ] {
            let error = format!("{:#}", parse(text, Path::new("/cg")).expect_err(text));
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
