//! What can be answered without the scheduler: questions about this machine and its processes.

use std::sync::Arc;

use divvy_linux::Pid;

use crate::market::message::Who;
use crate::message::Refusal;
use crate::protect::Shelter;
use crate::system::in_force::InForce;
use divvy_api::types::{ErrorCode, Explanation, Finding, PolicyInForce};

/// Answers from the API's own thread.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    shelter: Arc<Shelter>,
    policy_file: Option<Arc<InForce>>,
}

impl Local {
    /// Of a divvyd that goes by a policy file, if it does.
    pub(crate) fn new(shelter: Shelter, policy_file: Option<Arc<InForce>>) -> Self {
        Self { shelter: Arc::new(shelter), policy_file }
    }

    /// Which policy file holds.
    pub(crate) fn policy_file(&self) -> Option<PolicyInForce> {
        self.policy_file.as_ref().map(|file| file.told())
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
        // The kernel keeps from a user what others' processes read and write, and so does a divvyd that is root.
        let whom = (who.uid != 0).then_some(who.uid);
        let said = divvy_linux::explain(pid, &shelter.protection(), whom);
        said.map_err(|e| Refusal::new(ErrorCode::Internal, e, ""))
    }

    /// What this machine permits.
    pub(crate) fn doctor(&self) -> Vec<Finding> {
        divvy_linux::doctor()
    }
}
