//! Rows of long lists, the same for `List…` and for `Stream…`.
//!
//! Most of a row never changes: names, labels, annotations. So that is encoded once for each pod and container and copied
//! from then on; what changes is encoded behind it. Metrics are all change, and many: they are encoded when there are new
//! samples, and not by whoever asks next (see [`metrics`]).

mod kept;
mod metrics;

use std::collections::VecDeque;

use cri_proto::{
    encoded::{Encoded, Row},
    v1,
};
use futures_util::stream;
use pod::{ContainerState, ContainerStats, SandboxState, SandboxStats};
use prost::Message;

use self::{kept::Kept, metrics::Metrics};
use crate::{
    answer::{Shared, Streamed},
    status::{
        ContainerFilter, SandboxFilter, attributes_of_container, attributes_of_sandbox, listed_container,
        listed_sandbox, usage_of_container, usage_of_sandbox,
    },
};

/// Bytes of rows after which the next message of a stream begins: far below what any client takes, and large enough that
/// few messages are needed.
const PART: usize = 256 * 1024;

/// What is encoded already.
#[derive(Default)]
pub(crate) struct Rows {
    sandboxes: Kept<SandboxState, Row>,
    containers: Kept<ContainerState, Row>,
    /// The field `attributes` of `ContainerStats`.
    of_containers: Kept<(), Vec<u8>>,
    /// The field `attributes` of `PodSandboxStats`.
    of_sandboxes: Kept<(), Vec<u8>>,
    metrics: Metrics,
}

/// `PodSandbox`, the oldest first.
pub(crate) fn pod_sandboxes(state: &Shared, filter: SandboxFilter) -> Vec<Row> {
    let mut kept = state.rows.sandboxes.open();
    state.engine.glance_at_sandboxes(|pod| {
        filter.fits(pod).then(|| kept.get(pod.id, pod.state, || Row::of(&listed_sandbox(pod))).clone())
    })
}

/// `Container`, the oldest first.
pub(crate) fn containers(state: &Shared, filter: ContainerFilter) -> Vec<Row> {
    let mut kept = state.rows.containers.open();
    state.engine.glance_at_containers(|container| {
        let row = || Row::of(&listed_container(container));
        filter.fits(container).then(|| kept.get(container.id, container.state, row).clone())
    })
}

/// `ContainerStats` of running containers.
pub(crate) async fn container_stats(state: &Shared, filter: ContainerFilter) -> Vec<Row> {
    let root = root(state);
    let found = state.engine.list_container_stats(|id, sandbox, labels| filter.names(id, sandbox, labels)).await;
    let mut kept = state.rows.of_containers.open();
    let mut usage = Vec::new();
    let mut row = |stats: &ContainerStats| {
        usage.clear();
        usage_of_container(stats, &root).encode_raw(&mut usage);
        Row::of_encoded(&[kept.get(&stats.container.id, (), || container_attributes(stats)), &usage])
    };
    found.iter().map(|stats| row(stats)).collect()
}

/// `PodSandboxStats` of ready pods.
pub(crate) async fn pod_sandbox_stats(state: &Shared, filter: SandboxFilter) -> Vec<Row> {
    let root = root(state);
    let found = state.engine.list_sandbox_stats(|id, labels| filter.names(id, labels)).await;
    let (mut pods, mut containers) = (state.rows.of_sandboxes.open(), state.rows.of_containers.open());
    let row = |stats: &SandboxStats| {
        let mut linux = usage_of_sandbox(stats).encode_to_vec();
        for container in &stats.containers {
            let attributes = containers.get(&container.container.id, (), || container_attributes(container));
            let usage = usage_of_container(container, &root).encode_to_vec();
            nested(tag::CONTAINERS, &[attributes, &usage], &mut linux);
        }
        let mut whole = Vec::with_capacity(linux.len() + 8);
        nested(tag::LINUX, &[&linux], &mut whole);
        Row::of_encoded(&[pods.get(&stats.sample.sandbox.id, (), || sandbox_attributes(stats)), &whole])
    };
    found.iter().map(row).collect()
}

/// `PodSandboxMetrics` of ready pods.
pub(crate) async fn pod_sandbox_metrics(state: &Shared) -> Vec<Row> {
    state.rows.metrics.rows(state).await
}

/// Where writable layers are, as kubelet compares it.
pub(crate) fn root(state: &Shared) -> String {
    state.engine.images().root().to_string_lossy().into_owned()
}

/// Numbers of fields; a test compares them with the messages.
mod tag {
    /// Of `LinuxPodSandboxStats`.
    pub(super) const CONTAINERS: u32 = 5;
    /// Of `PodSandboxStats`.
    pub(super) const LINUX: u32 = 2;
}

fn container_attributes(stats: &ContainerStats) -> Vec<u8> {
    v1::ContainerStats { attributes: Some(attributes_of_container(stats)), ..Default::default() }.encode_to_vec()
}

fn sandbox_attributes(stats: &SandboxStats) -> Vec<u8> {
    v1::PodSandboxStats { attributes: Some(attributes_of_sandbox(stats)), ..Default::default() }.encode_to_vec()
}

fn nested(tag: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    use prost::encoding::{WireType, encode_key, encode_varint};
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(parts.iter().map(|part| part.len() as u64).sum(), out);
    parts.iter().for_each(|part| out.extend_from_slice(part));
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

#[cfg(test)]
mod tests;
