//! Rows of long lists, the same for `List…` and for `Stream…`.

use std::collections::VecDeque;

use cri_proto::encoded::{Encoded, Row};
use futures_util::stream;

use crate::{
    answer::{Shared, Streamed},
    status::{
        ContainerFilter, Filesystem, SandboxFilter, container_stats as stats_of_container, listed_container,
        listed_sandbox, sandbox_metrics, sandbox_stats as stats_of_sandbox,
    },
};

/// Bytes of rows after which the next message of a stream begins: far below what any client takes, and large enough that
/// few messages are needed.
const PART: usize = 256 * 1024;

/// `PodSandbox`, the oldest first. One that is being made is nobody's yet: whoever asked for it has no id.
pub(crate) fn pod_sandboxes(state: &Shared, filter: SandboxFilter) -> Vec<Row> {
    let sandboxes = state.engine.sandboxes();
    sandboxes.iter().filter(|s| !s.making && filter.fits(s)).map(|s| Row::of(&listed_sandbox(s))).collect()
}

/// `Container`, the oldest first.
pub(crate) fn containers(state: &Shared, filter: ContainerFilter) -> Vec<Row> {
    let containers = state.engine.containers();
    containers.iter().filter(|c| !c.making && filter.fits(c)).map(|c| Row::of(&listed_container(c))).collect()
}

/// `ContainerStats` of running containers.
pub(crate) async fn container_stats(state: &Shared, filter: ContainerFilter) -> Vec<Row> {
    let root = state.engine.images().root();
    let found = state.engine.list_container_stats(|id, sandbox, labels| filter.names(id, sandbox, labels)).await;
    found.iter().map(|stats| Row::of(&stats_of_container(stats, root))).collect()
}

/// `PodSandboxStats` of ready pods.
pub(crate) async fn pod_sandbox_stats(state: &Shared, filter: SandboxFilter) -> Vec<Row> {
    let root = state.engine.images().root();
    let found = state.engine.list_sandbox_stats(|id, labels| filter.names(id, labels)).await;
    found.iter().map(|stats| Row::of(&stats_of_sandbox(stats, root))).collect()
}

/// `PodSandboxMetrics` of ready pods.
pub(crate) async fn pod_sandbox_metrics(state: &Shared) -> Vec<Row> {
    let filesystem = Filesystem::of(state.engine.images().root());
    let found = state.engine.list_sandbox_stats(|_, _| true).await;
    found.iter().map(|stats| sandbox_metrics(stats, &filesystem)).collect()
}

/// Messages of some [`PART`] each, every row in exactly one; at least one row in each. It is read by the client's pace and
/// holds nothing but the rows.
pub(crate) fn in_parts<T: Send + 'static>(rows: Vec<Row>) -> Streamed<Encoded<T>> {
    let mut rows = VecDeque::from(rows);
    Box::pin(stream::iter(std::iter::from_fn(move || {
        let (mut part, mut length) = (Vec::new(), 0);
        while length < PART {
            let Some(row) = rows.pop_front() else { break };
            length += row.len();
            part.push(row);
        }
        (!part.is_empty()).then(|| Ok(Encoded::from(part)))
    })))
}
