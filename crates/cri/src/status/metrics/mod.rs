//! `ListMetricDescriptors` and `ListPodSandboxMetrics`: the metrics that cAdvisor tells of containers, by its names.
//!
//! Kubelet writes them out at `/metrics/cadvisor` where its gate `PodAndContainerStatsFromCRI` is on (KEP-2371). A
//! [`family`](families) is a descriptor, and every metric is written through one, so the two lists cannot disagree.
//!
//! A node of a thousand pods has tens of thousands of metrics, so they are written as bytes at once, not as messages.

mod container;
mod device;
mod families;
mod sandbox;
mod writer;

pub(crate) use device::Filesystem;
pub(crate) use families::descriptors;
pub(crate) use sandbox::of_sandbox;

#[cfg(test)]
mod tests;
