//! A site's nodes: where the divvyd of each is reached, and that each name leads to a divvyd of its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use divvy_api::client::{Api, ApiError};
use divvy_api::types::Status;
use serde::Deserialize;

use crate::{Code, Failure, tell};

/// The file that says so.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodesFile {
    /// By name, the socket of the node's divvyd.
    pub(super) nodes: BTreeMap<String, PathBuf>,
    #[serde(default)]
    pub(super) classes: BTreeMap<String, Vec<String>>,
}

impl NodesFile {
    /// # Errors
    /// [`Failure`] where it cannot be read, is no such file, or names what is not there.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |e: &dyn std::fmt::Display| Failure::new(Code::File, format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(&crate::files::cause(&e)))?;
        let file: Self = toml::from_str(&text).map_err(|e| wrong(&e))?;
        if let Some(both) = file.classes.keys().find(|name| file.nodes.contains_key(*name)) {
            return Err(wrong(&format!("'{both}' is a node and a class")));
        }
        for (class, nodes) in &file.classes {
            if let Some(node) = nodes.iter().find(|node| !file.nodes.contains_key(*node)) {
                return Err(wrong(&format!("class {class}: there is no node '{node}'")));
            }
        }
        Ok(file)
    }
}

/// Which divvyd answered by which node's name: a tunnel or a link that leads to another node is found out before that is
/// told anything.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// By node, the instance of its divvyd; empty until it has answered.
    met: Mutex<BTreeMap<String, String>>,
}

impl Directory {
    pub(super) fn new(file: &NodesFile) -> Self {
        let met = file.nodes.keys().map(|name| (name.clone(), String::new())).collect();
        Self { met: Mutex::new(met) }
    }

    /// The divvyd of the node `name`.
    ///
    /// # Errors
    /// In words: nobody answers, or it is another node's.
    pub(super) fn open(&self, name: &str, socket: &Path) -> Result<Api, String> {
        let api = Api::of_system_at(socket).map_err(|e| e.to_string())?;
        let status = api.status().map_err(|e| e.to_string())?;
        self.check(name, &status).map_err(|whose| {
            let socket = socket.display();
            format!("a divvyd answers at {socket} that is {whose}: mend the socket, or the file of nodes")
        })?;
        let ours = env!("CARGO_PKG_VERSION");
        if status.version != ours {
            let theirs = &status.version;
            tell(format_args!("divvy: node {name}: its divvyd is {theirs}, this divvy {ours}"));
        }
        Ok(api)
    }

    /// # Errors
    /// Whose it is.
    fn check(&self, name: &str, status: &Status) -> Result<(), String> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let host = status.host.split('.').next().unwrap_or_default();
        if host != name && met.contains_key(host) {
            return Err(format!("node {host}'s, by its machine's name"));
        }
        // One that is older than that says nothing of itself.
        if let Some((other, _)) =
            met.iter().find(|(node, is)| *node != name && !is.is_empty() && **is == status.instance)
        {
            return Err(format!("node {other}'s too"));
        }
        met.insert(name.to_owned(), status.instance.clone());
        Ok(())
    }

    /// A node that does not answer may be another divvyd when it does.
    pub(super) fn forget(&self, name: &str) {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), String::new());
    }
}

/// Asks one divvyd whatever comes over `queue`, always the newest, over one connection as long as that serves; `told` is given each
/// answer, and says whether to go on. Ends with whoever sends, too.
pub(super) fn ask_newest<T, R>(
    queue: &Receiver<T>,
    open: impl Fn() -> Result<Api, String>,
    ask: impl Fn(&Api, &T) -> Result<R, ApiError>,
    told: impl Fn(T, Result<R, String>) -> bool,
) {
    let mut api = None;
    while let Ok(first) = queue.recv() {
        let newest = queue.try_iter().last().unwrap_or(first);
        let answer = api.take().map_or_else(&open, Ok).and_then(|opened| {
            let answer = ask(&opened, &newest).map_err(|e| e.to_string())?;
            api = Some(opened);
            Ok(answer)
        });
        if !told(newest, answer) {
            return;
        }
    }
}

/// A time from `range`, which is written as `words`.
pub(super) fn parse_time(
    text: &str,
    range: RangeInclusive<Duration>,
    words: &str,
) -> Result<Duration, String> {
    let time = divvy_api::time::parse(text)?;
    if range.contains(&time) { Ok(time) } else { Err(format!("give {words}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_to_another_node_is_found_out() {
        let file: NodesFile = toml::from_str("[nodes]\nn1 = \"/1\"\nn2 = \"/2\"\n").expect("a file");
        let directory = Directory::new(&file);
        let status = |host: &str, instance: &str| -> Status {
            serde_json::from_value(serde_json::json!({
                "version": "1", "pid": 1, "policy": "exact", "quantum_ns": 1, "cpus": [0], "uptime_ns": 1, "clients": 0,
                "self": divvy_api::types::OwnCost::default(), "host": host, "instance": instance,
            }))
            .expect("a status")
        };
        let asked = |name: &str, host: &str, instance: &str| directory.check(name, &status(host, instance));
        assert_eq!(asked("n1", "n1.site", "a"), Ok(()));
        assert_eq!(asked("n2", "n1", "b"), Err("node n1's, by its machine's name".into()));
        assert_eq!(asked("n2", "n2", "a"), Err("node n1's too".into()));
        // An address of another name is nobody else's; and the same divvyd may be asked again.
        assert_eq!(asked("n2", "login", "b"), Ok(()));
        assert_eq!(asked("n2", "login", "b"), Ok(()));
        // One that went away may be reached by another name then.
        directory.forget("n1");
        assert_eq!(asked("n1", "login", "b"), Err("node n2's too".into()));
        directory.forget("n2");
        assert_eq!(asked("n1", "login", "b"), Ok(()));
        // Divvyds of before do not say who they are.
        assert_eq!((asked("n1", "", ""), asked("n2", "", "")), (Ok(()), Ok(())));
    }
}
