//! Groups of processes that no monitor holds any more: one that died while it made a container, or a pod's init, had
//! told nobody of it.

use std::sync::Arc;

use cgroup::{Group, GroupPath};

use crate::{
    Error,
    engine::{Inner, blocking},
    error::failed,
};

/// Kills what is in the group of an object, and removes it. Fine where there is none, as there is where the monitor did
/// it. `owner` is an id that must be in the path: a record that cannot be read must not make this everybody's group.
pub(crate) async fn end_group(engine: &Arc<Inner>, path: String, owner: &str) -> Result<(), Error> {
    if owner.is_empty() || !path.rsplit('/').next().is_some_and(|name| name.starts_with(owner)) {
        return Ok(());
    }
    let engine = Arc::clone(engine);
    blocking(move || {
        let told = format!("remove cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&told))?;
        Group::end_remains(&engine.trees, &path).map_err(failed(told))
    })
    .await
}
