//! Tasks of a `divvy share` that divides by itself: `ls` lists them, and no divvyd can change them.

use divvy_api::runs::{self, ShareRun};

/// What is said where no client or group of divvyd's is called `key`, but such a task is.
pub(super) fn reason(key: &str) -> Option<String> {
    // A directory that cannot be trusted has no runs to be told of.
    reason_among(key, &runs::all().ok()?)
}

fn reason_among(key: &str, runs: &[ShareRun]) -> Option<String> {
    let run = runs.iter().find(|run| run.clients.iter().any(|task| task.name == key))?;
    Some(format!(
        "'{key}' is a task of a `divvy share` (pid {}) that divides by itself: it cannot be changed while it runs; `divvy share --group \
         NAME` puts its tasks under divvyd, where they can be",
        run.pid
    ))
}

#[cfg(test)]
mod tests {
    use divvy_api::types::Client;

    use super::*;

    #[test]
    fn a_task_of_a_run_is_not_called_unknown() {
        let task = |name: &str| Client { name: name.to_owned(), ..Client::default() };
        let run = |pid, name| ShareRun {
            pid,
            policy: "exact".into(),
            cpus: vec![0],
            uptime_ns: 5,
            clients: vec![task(name)],
        };
        let runs = [run(7, "small"), run(9, "big")];
        let said = reason_among("big", &runs).expect("a task");
        assert!(
            said.starts_with("'big' is a task of a `divvy share` (pid 9) that divides by itself"),
            "{said}"
        );
        assert!(said.contains("--group"), "{said}");
        assert_eq!(reason_among("bi", &runs), None);
    }
}
