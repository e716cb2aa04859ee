//! Encoded rows of long lists, shared by `List…` and `Stream…`.
//!
//! Most of a row never changes: names, labels, annotations. This part is encoded once for each pod and container and
//! copied afterwards; the variable part is appended. Metrics consist only of variable values, and there are many: they
//! are encoded in the background after each round of samples, not by the next request (see [`sampled`]).

mod field;
mod list_cache;
mod row_cache;
mod sampled;

use std::sync::Arc;

use cri_proto::encoded::{Encoded, Row};
use futures_util::stream::{self, BoxStream};
use pod::{ContainerState, Generation, SandboxState};
use tonic::Status;

pub(crate) use self::list_cache::Rows;
use self::{list_cache::ListCache, row_cache::RowCache, sampled::SampledLists};
use crate::status::{ContainerFilter, SandboxFilter, listed_container, listed_sandbox};

/// Size of rows in bytes after which a new message of a stream begins: far below every client's limit for messages, and
/// large enough that few messages are needed.
const PART: usize = 256 * 1024;

/// The caches of encoded rows and lists.
pub(crate) struct RowCaches {
    engine: pod::Engine,
    sandboxes: RowCache<SandboxState, Row>,
    containers: RowCache<ContainerState, Row>,
    all_sandboxes: ListCache<Generation>,
    all_containers: ListCache<Generation>,
    sampled: SampledLists,
}

impl RowCaches {
    /// Creates empty caches of the engine's lists.
    pub(crate) fn new(engine: pod::Engine) -> Arc<Self> {
        Arc::new(Self {
            engine,
            sandboxes: RowCache::default(),
            containers: RowCache::default(),
            all_sandboxes: ListCache::default(),
            all_containers: ListCache::default(),
            sampled: SampledLists::default(),
        })
    }

    /// Returns the rows of `PodSandbox`, the oldest pod first.
    pub(crate) fn pod_sandboxes(&self, filter: SandboxFilter) -> Rows {
        let list = filter.is_none().then_some(&self.all_sandboxes);
        let generation = self.engine.generation();
        if let Some(rows) = list.and_then(|list| list.get(|cached| *cached == generation)) {
            return rows;
        }
        let (mut cache, mut settled) = (self.sandboxes.open(), true);
        let rows = self.engine.summarize_sandboxes(|pod| {
            settled &= pod.settled;
            filter
                .matches(pod)
                .then(|| cache.get(pod.id.as_str(), pod.state, || Row::encode(&listed_sandbox(pod))).clone())
        });
        let rows = rows.into();
        list.into_iter().for_each(|list| list.set(settled.then_some(generation), &rows));
        rows
    }

    /// Returns the rows of `Container`, the oldest container first.
    pub(crate) fn containers(&self, filter: ContainerFilter) -> Rows {
        let list = filter.is_none().then_some(&self.all_containers);
        let generation = self.engine.generation();
        if let Some(rows) = list.and_then(|list| list.get(|cached| *cached == generation)) {
            return rows;
        }
        let (mut cache, mut settled) = (self.containers.open(), true);
        let rows = self.engine.summarize_containers(|container| {
            settled &= container.settled;
            let row = || Row::encode(&listed_container(container));
            filter.matches(container).then(|| cache.get(container.id.as_str(), container.state, row).clone())
        });
        let rows = rows.into();
        list.into_iter().for_each(|list| list.set(settled.then_some(generation), &rows));
        rows
    }

    /// Returns the rows of `ContainerStats`, one for each running container.
    pub(crate) async fn container_stats(self: &Arc<Self>, filter: ContainerFilter) -> Rows {
        if filter.is_none() {
            return self.sampled.container_stats(self).await;
        }
        let stats =
            self.engine.list_container_stats(|id, sandbox, labels| filter.matches_labels(id, sandbox, labels)).await;
        self.sampled.encode_containers(&stats, &root(&self.engine))
    }

    /// Returns the rows of `PodSandboxStats`, one for each ready pod.
    pub(crate) async fn pod_sandbox_stats(self: &Arc<Self>, filter: SandboxFilter) -> Rows {
        if filter.is_none() {
            return self.sampled.sandbox_stats(self).await;
        }
        let stats = self.engine.list_sandbox_stats(|id, labels| filter.matches_labels(id, labels)).await;
        self.sampled.encode_sandboxes(&stats, &root(&self.engine))
    }

    /// Returns the rows of `PodSandboxMetrics`, one for each ready pod.
    pub(crate) async fn pod_sandbox_metrics(self: &Arc<Self>) -> Rows {
        self.sampled.metrics(self).await
    }
}

/// Returns the directory of writable layers, in the form that kubelet compares.
pub(crate) fn root(engine: &pod::Engine) -> String {
    engine.images().root().to_string_lossy().into_owned()
}

/// Groups rows into messages of about [`PART`] bytes. Each message has at least one row, and each row is in exactly one
/// message. The stream is polled at the client's pace and holds only the rows.
pub(crate) fn in_parts<T: Send + 'static>(rows: Rows) -> BoxStream<'static, Result<Encoded<T>, Status>> {
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
