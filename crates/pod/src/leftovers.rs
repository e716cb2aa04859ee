//! Cgroups of objects that no monitor holds anymore: a monitor that died while it created a container or a pod's init
//! had not reported it to anyone.

use std::sync::Arc;

use cgroup::{Group, GroupPath};

use crate::{
    Error,
    engine::{Inner, blocking},
    error::failed,
};

/// Kills the processes in the cgroup of an object, and removes the cgroup. Succeeds if it does not exist, for example
/// because the monitor removed it. `owner` is an id that must occur in the path: it prevents an unreadable record from
/// naming a cgroup of other objects.
pub(crate) async fn remove_group(engine: &Arc<Inner>, path: String, owner: &str) -> Result<(), Error> {
    if owner.is_empty() || !path.rsplit('/').next().is_some_and(|name| name.starts_with(owner)) {
        return Ok(());
    }
    let engine = Arc::clone(engine);
    blocking(move || {
        let operation = format!("remove cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&operation))?;
        Group::remove_leftover(&engine.trees, &path).map_err(failed(operation))
    })
    .await
}
