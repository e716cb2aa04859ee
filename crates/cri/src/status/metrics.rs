//! `ListMetricDescriptors` and `ListPodSandboxMetrics`: the container metrics of cAdvisor, with the same names.
//!
//! Kubelet exports them at `/metrics/cadvisor` if its feature gate `PodAndContainerStatsFromCRI` is enabled (KEP-2371).
//! Every metric is written by means of its [`family`](families), which is also its descriptor, so the two lists cannot
//! differ.
//!
//! A node with a thousand pods has tens of thousands of metrics, so they are encoded directly, without message structs.

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
