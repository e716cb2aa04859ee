use monitor_api::Reply;

use super::Answer;
use crate::monitor::Monitor;

impl Monitor {
    /// Answers that the event loop turns, and which log file systems hang.
    pub(super) fn ping(&self) -> Answer {
        Ok(Some(Reply::Pong(self.pong())))
    }
}
