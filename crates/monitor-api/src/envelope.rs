use serde::{Deserialize, Serialize};

use crate::{Event, Failure, Reply, Request, Role};

/// One frame on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Envelope {
    /// Daemon to monitor.
    Request {
        /// Chosen by the daemon and repeated in the reply.
        seq: u64,
        /// The request.
        body: Box<Request>,
        /// Roles of the attached descriptors, in order.
        #[serde(default)]
        roles: Vec<Role>,
    },
    /// Monitor to daemon: the reply to request `seq`.
    Reply {
        /// Sequence number of the request.
        seq: u64,
        /// The reply.
        body: Result<Reply, Failure>,
        /// Roles of the attached descriptors, in order.
        #[serde(default)]
        roles: Vec<Role>,
    },
    /// Monitor to daemon, unsolicited.
    Event(Event),
}
