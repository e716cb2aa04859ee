use std::{path::Path, time::Duration};

use cri_proto::v1::ListPodSandboxRequest;
use futures_util::{StreamExt, future::join_all, stream};

use super::{Shape, lifecycle::force_remove};
use crate::{engine::Engine, note::note};

/// Timeout of the list of pods, and of the removal of all those of an engine.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(500);
/// Pods that are removed at a time.
const IN_FLIGHT: usize = 8;

/// Removes the pods of a run that are left in engines: those whose removal failed, and those of which an engine did not return an id.
pub(crate) async fn remove_leftovers(engines: &[Engine], shape: &Shape) {
    let removals = engines.iter().map(|engine| async move {
        if tokio::time::timeout(TIMEOUT, remove(engine, shape)).await.is_err() {
            note(&format!("pinion-bench: {}: pods are left over", engine.name));
        }
    });
    join_all(removals).await;
    remove_parents();
}

/// Removes the empty parents of the pods' cgroups. That of systemd is removed by systemd.
fn remove_parents() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for (mount, filesystem) in mounts.lines().filter_map(|line| line.split_once(" - ")) {
        if let Some(directory) = mount.split(' ').nth(4).filter(|_| filesystem.starts_with("cgroup")) {
            // It may not exist, or be in use by another run.
            let _ = std::fs::remove_dir(Path::new(directory).join("pinion-bench"));
        }
    }
}

async fn remove(engine: &Engine, shape: &Shape) {
    // A request that was given up may have created a pod after the first list.
    for _ in 0..2 {
        let pods = leftovers(engine, shape).await;
        let mut removed = stream::iter(&pods).map(|pod| force_remove(engine, pod)).buffer_unordered(IN_FLIGHT);
        while let Some(responds) = removed.next().await {
            if !responds {
                note(&format!("pinion-bench: {}: it does not respond; pods may be left over", engine.name));
                return;
            }
        }
        if pods.is_empty() {
            return;
        }
    }
    let pods = leftovers(engine, shape).await;
    if let Some(first) = pods.first() {
        note(&format!(
            "pinion-bench: {}: {} pods could not be removed and are left over, such as {first}",
            engine.name,
            pods.len()
        ));
    }
}

/// Returns the ids of the pods of this run.
async fn leftovers(engine: &Engine, shape: &Shape) -> Vec<String> {
    let mut runtime = engine.runtime.clone();
    let list = tokio::time::timeout(LIST_TIMEOUT, runtime.list_pod_sandbox(ListPodSandboxRequest::default())).await;
    let Ok(Ok(list)) = list else {
        note(&format!("pinion-bench: {}: pods cannot be listed; some may be left over", engine.name));
        return Vec::new();
    };
    let prefix = shape.uid_prefix();
    let is_own = |uid: &str| uid.starts_with(&prefix);
    let pods = list.into_inner().items.into_iter();
    pods.filter(|pod| pod.metadata.as_ref().is_some_and(|metadata| is_own(&metadata.uid))).map(|pod| pod.id).collect()
}
