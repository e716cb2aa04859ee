//! Encoded rows of long lists, shared by `List…` and `Stream…`.
//!
//! Most of a row never changes: names, labels, annotations. This part is encoded once for each pod and container and
//! copied afterwards; the variable part is appended. Metrics consist only of variable values, and there are many: they
//! are encoded in the background after each round of samples, not by the next request (see [`sampled`]).

mod field;
mod list_cache;
mod row_cache;
mod sampled;

use cri_proto::encoded::Row;
use futures_util::stream;
use pod::{ContainerState, Generation, SandboxState};

pub(crate) use self::list_cache::Rows;
use self::{list_cache::ListCache, row_cache::RowCache, sampled::SampledLists};
use crate::{
    handler::{Shared, Streamed},
    status::{ContainerFilter, SandboxFilter, listed_container, listed_sandbox},
};

/// Size of rows in bytes after which a new message of a stream begins: far below every client's limit for messages, and
/// large enough that few messages are needed.
const PART: usize = 256 * 1024;

/// The caches of encoded rows and lists.
#[derive(Default)]
pub(crate) struct RowCaches {
    sandboxes: RowCache<SandboxState, Row>,
    containers: RowCache<ContainerState, Row>,
    all_sandboxes: ListCache<Generation>,
    all_containers: ListCache<Generation>,
    sampled: SampledLists,
}

/// Returns the rows of `PodSandbox`, the oldest pod first.
pub(crate) fn pod_sandboxes(state: &Shared, filter: SandboxFilter) -> Rows {
    let list = filter.is_none().then_some(&state.rows.all_sandboxes);
    let generation = state.engine.generation();
    if let Some(rows) = list.and_then(|list| list.get(|cached| *cached == generation)) {
        return rows;
    }
    let (mut cache, mut settled) = (state.rows.sandboxes.open(), true);
    let rows = state.engine.summarize_sandboxes(|pod| {
        settled &= pod.settled;
        filter.matches(pod).then(|| cache.get(pod.id, pod.state, || Row::encode(&listed_sandbox(pod))).clone())
    });
    let rows = rows.into();
    list.into_iter().for_each(|list| list.set(settled.then_some(generation), &rows));
    rows
}

/// Returns the rows of `Container`, the oldest container first.
pub(crate) fn containers(state: &Shared, filter: ContainerFilter) -> Rows {
    let list = filter.is_none().then_some(&state.rows.all_containers);
    let generation = state.engine.generation();
    if let Some(rows) = list.and_then(|list| list.get(|cached| *cached == generation)) {
        return rows;
    }
    let (mut cache, mut settled) = (state.rows.containers.open(), true);
    let rows = state.engine.summarize_containers(|container| {
        settled &= container.settled;
        let row = || Row::encode(&listed_container(container));
        filter.matches(container).then(|| cache.get(container.id, container.state, row).clone())
    });
    let rows = rows.into();
    list.into_iter().for_each(|list| list.set(settled.then_some(generation), &rows));
    rows
}

/// Returns the rows of `ContainerStats`, one for each running container.
pub(crate) async fn container_stats(state: &Shared, filter: ContainerFilter) -> Rows {
    if filter.is_none() {
        return state.rows.sampled.container_stats(state).await;
    }
    let stats =
        state.engine.list_container_stats(|id, sandbox, labels| filter.matches_labels(id, sandbox, labels)).await;
    state.rows.sampled.encode_containers(&stats, &root(state))
}

/// Returns the rows of `PodSandboxStats`, one for each ready pod.
pub(crate) async fn pod_sandbox_stats(state: &Shared, filter: SandboxFilter) -> Rows {
    if filter.is_none() {
        return state.rows.sampled.sandbox_stats(state).await;
    }
    let stats = state.engine.list_sandbox_stats(|id, labels| filter.matches_labels(id, labels)).await;
    state.rows.sampled.encode_sandboxes(&stats, &root(state))
}

/// Returns the rows of `PodSandboxMetrics`, one for each ready pod.
pub(crate) async fn pod_sandbox_metrics(state: &Shared) -> Rows {
    state.rows.sampled.metrics(state).await
}

/// Returns the directory of writable layers, in the form that kubelet compares.
pub(crate) fn root(state: &Shared) -> String {
    state.engine.images().root().to_string_lossy().into_owned()
}

/// Groups rows into messages of about [`PART`] bytes. Each message has at least one row, and each row is in exactly one
/// message. The stream is polled at the client's pace and holds only the rows.
pub(crate) fn in_parts<T: Send + 'static>(rows: Rows) -> Streamed<cri_proto::encoded::Encoded<T>> {
    let mut next = 0;
    Box::pin(stream::iter(std::iter::from_fn(move || {
        let (mut part, mut length) = (Vec::new(), 0);
        while let Some(row) = rows.get(next).filter(|_| length < PART) {
            length += row.len();
            part.push(row.clone());
            next += 1;
        }
        (!part.is_empty()).then(|| Ok(part.into()))
    })))
}

#[cfg(test)]
mod tests;
