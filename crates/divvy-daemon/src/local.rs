//! What can be answered without the scheduler: questions about this machine and its processes.

use std::sync::Arc;

use divvy_linux::Pid;

use crate::market::message::Who;
use crate::message::Refusal;
use crate::protect::Shelter;
use divvy_api::types::{ErrorCode, Explanation, Finding};

/// Answers from the API's own thread.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    shelter: Arc<Shelter>,
}

impl Local {
    pub(crate) fn new(shelter: Shelter) -> Self {
        Self { shelter: Arc::new(shelter) }
    }

    /// What would be done with process `pid`, were it attached by `who`.
    pub(crate) fn explain(&self, pid: &str, who: &Who) -> Result<Explanation, Refusal> {
        let number = pid.parse::<i32>().ok().filter(|&n| n > 0).and_then(Pid::from_raw);
        let pid = number.ok_or_else(|| {
            let text = format!("'{pid}' is no process number");
            Refusal::new(ErrorCode::BadRequest, text, "give a positive number, as ps prints it")
        })?;
        let mut shelter = Shelter::clone(&self.shelter);
        if let Some(caller) = who.process() {
            shelter.add_caller(caller);
        }
        let said = divvy_linux::explain(pid, &shelter.protection());
        said.map_err(|e| Refusal::new(ErrorCode::Internal, e, ""))
    }

    /// What this machine permits.
    pub(crate) fn doctor(&self) -> Vec<Finding> {
        divvy_linux::doctor()
    }
}
