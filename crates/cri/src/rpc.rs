//! The table of all RPCs and their metrics.

use telemetry::{Counter, Gauge, Histogram, bounds};
use tonic::Code;

/// A gRPC service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Runtime,
    Image,
    Pinion,
}

macro_rules! rpcs {
    ($($name:ident: $service:ident $method:literal,)*) => {
        /// An RPC. Methods of `pinion.v1` have the prefix `Native`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Rpc { $($name),* }

        const TABLE: &[(Service, &str)] = &[$((Service::$service, $method)),*];
    };
}

rpcs! {
    Version: Runtime "Version",
    Status: Runtime "Status",
    RuntimeConfig: Runtime "RuntimeConfig",
    UpdateRuntimeConfig: Runtime "UpdateRuntimeConfig",
    RunPodSandbox: Runtime "RunPodSandbox",
    StopPodSandbox: Runtime "StopPodSandbox",
    RemovePodSandbox: Runtime "RemovePodSandbox",
    PodSandboxStatus: Runtime "PodSandboxStatus",
    ListPodSandbox: Runtime "ListPodSandbox",
    CreateContainer: Runtime "CreateContainer",
    StartContainer: Runtime "StartContainer",
    StopContainer: Runtime "StopContainer",
    RemoveContainer: Runtime "RemoveContainer",
    ListContainers: Runtime "ListContainers",
    ContainerStatus: Runtime "ContainerStatus",
    UpdateContainerResources: Runtime "UpdateContainerResources",
    ReopenContainerLog: Runtime "ReopenContainerLog",
    ExecSync: Runtime "ExecSync",
    Exec: Runtime "Exec",
    Attach: Runtime "Attach",
    PortForward: Runtime "PortForward",
    ContainerStats: Runtime "ContainerStats",
    ListContainerStats: Runtime "ListContainerStats",
    PodSandboxStats: Runtime "PodSandboxStats",
    ListPodSandboxStats: Runtime "ListPodSandboxStats",
    CheckpointContainer: Runtime "CheckpointContainer",
    CheckpointPod: Runtime "CheckpointPod",
    RestorePod: Runtime "RestorePod",
    GetContainerEvents: Runtime "GetContainerEvents",
    ListMetricDescriptors: Runtime "ListMetricDescriptors",
    ListPodSandboxMetrics: Runtime "ListPodSandboxMetrics",
    UpdatePodSandboxResources: Runtime "UpdatePodSandboxResources",
    StreamPodSandboxes: Runtime "StreamPodSandboxes",
    StreamContainers: Runtime "StreamContainers",
    StreamContainerStats: Runtime "StreamContainerStats",
    StreamPodSandboxStats: Runtime "StreamPodSandboxStats",
    StreamPodSandboxMetrics: Runtime "StreamPodSandboxMetrics",
    ListImages: Image "ListImages",
    ImageStatus: Image "ImageStatus",
    PullImage: Image "PullImage",
    RemoveImage: Image "RemoveImage",
    ImageFsInfo: Image "ImageFsInfo",
    StreamImages: Image "StreamImages",
    NativePull: Pinion "Pull",
    NativeLoad: Pinion "Load",
    NativeSave: Pinion "Save",
    NativeExec: Pinion "Exec",
    NativeAttach: Pinion "Attach",
    NativeUntag: Pinion "Untag",
    NativeKill: Pinion "Kill",
    NativeWait: Pinion "Wait",
    NativeConfig: Pinion "Config",
    NativeReload: Pinion "Reload",
    NativeUpgradeMonitor: Pinion "UpgradeMonitor",
    NativeUpgradeDaemon: Pinion "UpgradeDaemon",
    NativeInfo: Pinion "Info",
    NativeCheckPod: Pinion "CheckPod",
    NativeWhy: Pinion "Why",
    NativeCreateNetwork: Pinion "CreateNetwork",
    NativeListNetworks: Pinion "ListNetworks",
    NativeInspectNetwork: Pinion "InspectNetwork",
    NativeRemoveNetwork: Pinion "RemoveNetwork",
    NativeConnectNetwork: Pinion "ConnectNetwork",
    NativeDisconnectNetwork: Pinion "DisconnectNetwork",
}

impl Rpc {
    /// Returns the method name.
    pub(crate) fn method(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Returns the full name of the service.
    pub(crate) fn service(self) -> &'static str {
        match TABLE[self as usize].0 {
            Service::Runtime => "runtime.v1.RuntimeService",
            Service::Image => "runtime.v1.ImageService",
            Service::Pinion => "pinion.v1.Pinion",
        }
    }

    pub(crate) fn metrics(self) -> &'static RpcMetrics {
        &METRICS[self as usize]
    }
}

/// Names of gRPC status codes, indexed by code, as the gRPC specification spells them.
pub const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Metrics of one RPC since the daemon started.
#[derive(Debug)]
pub struct RpcMetrics {
    /// Requests in progress and open streams.
    pub in_flight: Gauge,
    /// Completed requests by gRPC code (the index in [`CODES`]).
    pub completed: [Counter; CODES.len()],
    /// Duration of requests; for a stream, the time until it ends.
    pub duration: Histogram,
}

impl RpcMetrics {
    const fn new() -> Self {
        Self {
            in_flight: Gauge::new(),
            completed: [const { Counter::new() }; CODES.len()],
            duration: Histogram::new(&bounds::REQUEST),
        }
    }
}

/// Metrics of this process, which serves one socket.
static METRICS: [RpcMetrics; TABLE.len()] = [const { RpcMetrics::new() }; TABLE.len()];

/// Iterates over all RPCs: service (`runtime`, `image` or `pinion`), method, metrics.
pub fn rpc_metrics() -> impl Iterator<Item = (&'static str, &'static str, &'static RpcMetrics)> {
    TABLE.iter().zip(&METRICS).map(|((service, method), metrics)| {
        let service = match service {
            Service::Runtime => "runtime",
            Service::Image => "image",
            Service::Pinion => "pinion",
        };
        (service, *method, metrics)
    })
}

/// Returns the name of a code: `InvalidArgument`, …
pub(crate) fn code_name(code: Code) -> &'static str {
    CODES.get(code as usize).copied().unwrap_or("Unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rpc_has_its_row_in_the_table() {
        assert_eq!((Rpc::Version.method(), Rpc::Version.service()), ("Version", "runtime.v1.RuntimeService"));
        assert_eq!((Rpc::NativeInfo.method(), Rpc::NativeInfo.service()), ("Info", "pinion.v1.Pinion"));
        assert_eq!(Rpc::NativeDisconnectNetwork as usize + 1, TABLE.len());
    }

    #[test]
    fn every_cri_method_is_in_the_table_once() {
        for (service, file) in [("runtime", "RuntimeService"), ("image", "ImageService")] {
            let proto = include_str!("../../cri-proto/proto/cri-v1.proto");
            let body = proto.split(&format!("service {file} {{")).nth(1).expect("the service").split("\n}").next();
            for line in body.expect("its body").lines().filter_map(|line| line.trim().strip_prefix("rpc ")) {
                let method = line.split('(').next().expect("its name").trim();
                let rows = rpc_metrics().filter(|(of, name, _)| *of == service && *name == method).count();
                assert_eq!(rows, 1, "{service} {method}");
            }
        }
    }

    #[test]
    fn codes_are_indexed_by_number() {
        assert_eq!(code_name(Code::Ok), "OK");
        assert_eq!(code_name(Code::Cancelled), "Canceled");
        assert_eq!(code_name(Code::Unauthenticated), "Unauthenticated");
        assert_eq!(code_name(Code::FailedPrecondition), "FailedPrecondition");
    }
}
