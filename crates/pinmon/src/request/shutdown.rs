use monitor_api::{Failure, FailureKind, Reply};

use super::Answer;
use crate::monitor::Monitor;

impl Monitor {
    /// Ends the monitor, if nothing is held.
    pub(super) fn shutdown(&mut self) -> Answer {
        if !self.holds_nothing() {
            let (containers, keys) = (self.containers.len(), self.kept.len());
            let message =
                format!("shutdown: {containers} containers and {keys} keys are held; delete and release them first");
            return Err(Failure::new(FailureKind::State, message));
        }
        self.over = true;
        Ok(Some(Reply::Done))
    }
}
