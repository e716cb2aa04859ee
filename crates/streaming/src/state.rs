//! The state that all sessions share.

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Options, counts::Counters, tokens::Tokens};

/// The state that sessions share.
pub(crate) struct Shared<R> {
    pub(crate) runtime: R,
    pub(crate) options: Options,
    pub(crate) tokens: Tokens,
    pub(crate) counters: Arc<Counters>,
    /// Cancelled when the server stops.
    pub(crate) stopped: CancellationToken,
    pub(crate) sessions: TaskTracker,
}
