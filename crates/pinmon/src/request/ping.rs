use monitor_api::Reply;

use super::Answer;
use crate::monitor::Monitor;

impl Monitor {
    /// Answers the heartbeat, and reports the log file systems that hang.
    pub(super) fn ping(&self) -> Answer {
        Ok(Some(Reply::Pong(self.pong())))
    }
}
