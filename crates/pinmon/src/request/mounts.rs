use monitor_api::{Attachments, Failure, FailureKind, Reply};

use super::{Answer, create::check_new};
use crate::monitor::Monitor;

/// Keeps mounts for the `Create` of a container, until the connection closes.
pub(super) fn mounts(monitor: &mut Monitor, container: String, attachments: Attachments) -> Answer {
    check_new(monitor, &container)?;
    let kept = monitor.mounts.keep(container, attachments);
    kept.map_err(|message| Failure::new(FailureKind::State, message))?;
    Ok(Some(Reply::Done))
}
