use monitor_api::Reply;

use super::Answer;
use crate::{
    link::{Entry, RequestId},
    monitor::Monitor,
};

/// Lists all objects: one `Holding` per object, then `Done`.
pub(super) fn inventory(monitor: &mut Monitor, request_id: RequestId) -> Answer {
    let containers = monitor.containers.serials().into_iter().map(Entry::Container);
    let keys: Vec<String> = monitor.keyed_descriptors.keys().cloned().collect();
    for entry in containers.chain(keys.into_iter().map(Entry::Key)) {
        monitor.services.list(request_id, entry);
        monitor.flush();
    }
    Ok(Some(Reply::Done))
}
