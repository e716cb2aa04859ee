//! Rows of long lists, the same for `List…` and for `Stream…`.
//!
//! Most of a row never changes: names, labels, annotations. So that is encoded once for each pod and container and
//! copied from then on; what changes is encoded behind it. Metrics are all change, and many: they are encoded when
//! there are new samples, and not by whoever asks next (see [`metrics`]).

mod field;
mod kept;
mod sampled;
mod whole;

use cri_proto::encoded::Row;
use futures_util::stream;
use pod::{ContainerState, Mark, SandboxState};

pub(crate) use self::whole::Rows;
use self::{kept::Kept, sampled::Sampled, whole::Whole};
use crate::{
    answer::{Shared, Streamed},
    status::{ContainerFilter, SandboxFilter, listed_container, listed_sandbox},
};

/// Bytes of rows after which the next message of a stream begins: far below what any client takes, and large enough
/// that few messages are needed.
const PART: usize = 256 * 1024;

/// What is encoded already.
#[derive(Default)]
pub(crate) struct Encoded {
    sandboxes: Kept<SandboxState, Row>,
    containers: Kept<ContainerState, Row>,
    all_sandboxes: Whole<Mark>,
    all_containers: Whole<Mark>,
    sampled: Sampled,
}

/// `PodSandbox`, the oldest first.
pub(crate) fn pod_sandboxes(state: &Shared, filter: SandboxFilter) -> Rows {
    let whole = filter.is_none().then_some(&state.rows.all_sandboxes);
    let mark = state.engine.mark();
    if let Some(rows) = whole.and_then(|whole| whole.get(|kept| *kept == mark)) {
        return rows;
    }
    let (mut kept, mut settled) = (state.rows.sandboxes.open(), true);
    let rows = state.engine.glance_at_sandboxes(|pod| {
        settled &= pod.settled;
        filter.fits(pod).then(|| kept.get(pod.id, pod.state, || Row::of(&listed_sandbox(pod))).clone())
    });
    let rows = rows.into();
    whole.into_iter().for_each(|whole| whole.keep(settled.then_some(mark), &rows));
    rows
}

/// `Container`, the oldest first.
pub(crate) fn containers(state: &Shared, filter: ContainerFilter) -> Rows {
    let whole = filter.is_none().then_some(&state.rows.all_containers);
    let mark = state.engine.mark();
    if let Some(rows) = whole.and_then(|whole| whole.get(|kept| *kept == mark)) {
        return rows;
    }
    let (mut kept, mut settled) = (state.rows.containers.open(), true);
    let rows = state.engine.glance_at_containers(|container| {
        settled &= container.settled;
        let row = || Row::of(&listed_container(container));
        filter.fits(container).then(|| kept.get(container.id, container.state, row).clone())
    });
    let rows = rows.into();
    whole.into_iter().for_each(|whole| whole.keep(settled.then_some(mark), &rows));
    rows
}

/// `ContainerStats` of running containers.
pub(crate) async fn container_stats(state: &Shared, filter: ContainerFilter) -> Rows {
    if filter.is_none() {
        return state.rows.sampled.container_stats(state).await;
    }
    let found = state.engine.list_container_stats(|id, sandbox, labels| filter.names(id, sandbox, labels)).await;
    state.rows.sampled.encode_containers(&found, &root(state))
}

/// `PodSandboxStats` of ready pods.
pub(crate) async fn pod_sandbox_stats(state: &Shared, filter: SandboxFilter) -> Rows {
    if filter.is_none() {
        return state.rows.sampled.sandbox_stats(state).await;
    }
    let found = state.engine.list_sandbox_stats(|id, labels| filter.names(id, labels)).await;
    state.rows.sampled.encode_sandboxes(&found, &root(state))
}

/// `PodSandboxMetrics` of ready pods.
pub(crate) async fn pod_sandbox_metrics(state: &Shared) -> Rows {
    state.rows.sampled.metrics(state).await
}

/// Where writable layers are, as kubelet compares it.
pub(crate) fn root(state: &Shared) -> String {
    state.engine.images().root().to_string_lossy().into_owned()
}

/// Messages of some [`PART`] each, every row in exactly one; at least one row in each. It is read by the client's pace
/// and holds nothing but the rows.
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
