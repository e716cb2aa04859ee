use cri_proto::v1::ListPodSandboxRequest;

use super::{Shape, lifecycle::force_remove};
use crate::{engine::Engine, output::note};

/// Removes the pods of a run that are left in an engine: those whose removal failed, and those of which the engine did not return an id.
pub(crate) async fn remove_leftovers(engines: &[Engine], shape: &Shape) {
    for engine in engines {
        let mut runtime = engine.runtime.clone();
        let Ok(list) = runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await else { continue };
        let prefix = shape.uid_prefix();
        let is_own = |uid: &str| uid.starts_with(&prefix);
        for pod in list.into_inner().items {
            if pod.metadata.as_ref().is_some_and(|metadata| is_own(&metadata.uid)) {
                note(&format!("pinion-bench: {}: remove pod {}, which was left over", engine.name, pod.id));
                if !force_remove(engine, &pod.id).await {
                    break; // It does not respond.
                }
            }
        }
    }
}
