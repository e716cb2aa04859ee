use monitor_api::{Failure, FailureKind, Reply};

use super::Answer;
use crate::monitor::Monitor;

impl Monitor {
    /// Ends the monitor if it holds nothing.
    pub(super) fn shutdown(&mut self) -> Answer {
        if !self.holds_nothing() {
            let (containers, keys) = (self.containers.len(), self.keyed_descriptors.len());
            let message = format!(
                "shut down the monitor: it holds {containers} containers and {keys} keys; delete and release them first"
            );
            return Err(Failure::new(FailureKind::State, message));
        }
        self.should_exit = true;
        Ok(Some(Reply::Done))
    }
}
