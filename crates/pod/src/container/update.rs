//! `UpdateContainerResources`.

use std::sync::Arc;

use cgroup::Limits;

use super::ContainerPhase;
use crate::{
    Error,
    engine::{Inner, blocking},
};

pub(crate) async fn update(engine: &Arc<Inner>, id: &str, resources: oci::Resources) -> Result<(), Error> {
    let container = engine.container(id)?;
    let told = format!("update container {}", container.id());
    let limits = Limits::from_spec(&resources).map_err(|e| Error::invalid(format!("{told}: {e}")))?;
    let _alone = container.busy.lock().await;
    if matches!(container.record().phase, ContainerPhase::Creating | ContainerPhase::Exited) {
        return Err(Error::state(format!("{told}: it does not run")));
    }
    let (engine, of) = (Arc::clone(engine), Arc::clone(&container));
    blocking(move || of.group(&engine)?.update(&limits).map_err(|e| Error::internal(format!("{told}: {e}")))).await
}
