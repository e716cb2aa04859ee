//! `RuntimeService`: this file only says which function answers which RPC, and how (see [`crate::answer`]).

mod container_stats;
mod container_status;
mod create_container;
mod exec_sync;
mod list_container_stats;
mod list_containers;
mod list_pod_sandbox;
mod pod_sandbox_status;
mod remove_container;
mod remove_pod_sandbox;
mod reopen_container_log;
mod run_pod_sandbox;
mod runtime_config;
mod start_container;
mod status;
mod stop_container;
mod stop_pod_sandbox;
mod update_container_resources;
mod update_runtime_config;
mod version;

use cri_proto::v1::{self, runtime_service_server::RuntimeService};
use tokio_stream::Empty;
use tonic::{Request, Status};

use crate::{
    Failure,
    answer::{Answer, Shared, changing, reading},
};

/// Answers the runtime half of the CRI.
pub(crate) struct Runtime(pub(crate) Shared);

/// A stream that is never made.
type Never<T> = Empty<Result<T, Status>>;

fn refuse<T>(rpc: &'static str, instead: &str) -> Answer<T> {
    Err(Failure::unimplemented(rpc, instead).into())
}

#[tonic::async_trait]
impl RuntimeService for Runtime {
    async fn version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        reading("Version", version::answer(self.0.clone(), request.into_inner())).await
    }
    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        reading("Status", status::answer(self.0.clone(), request.into_inner())).await
    }
    async fn runtime_config(&self, request: Request<v1::RuntimeConfigRequest>) -> Answer<v1::RuntimeConfigResponse> {
        reading("RuntimeConfig", runtime_config::answer(self.0.clone(), request.into_inner())).await
    }
    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        reading("UpdateRuntimeConfig", update_runtime_config::answer(self.0.clone(), request.into_inner())).await
    }
    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answer<v1::RunPodSandboxResponse> {
        changing("RunPodSandbox", run_pod_sandbox::answer(self.0.clone(), request.into_inner())).await
    }
    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        changing("StopPodSandbox", stop_pod_sandbox::answer(self.0.clone(), request.into_inner())).await
    }
    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        changing("RemovePodSandbox", remove_pod_sandbox::answer(self.0.clone(), request.into_inner())).await
    }
    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        reading("PodSandboxStatus", pod_sandbox_status::answer(self.0.clone(), request.into_inner())).await
    }
    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        reading("ListPodSandbox", list_pod_sandbox::answer(self.0.clone(), request.into_inner())).await
    }
    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        changing("CreateContainer", create_container::answer(self.0.clone(), request.into_inner())).await
    }
    async fn start_container(&self, request: Request<v1::StartContainerRequest>) -> Answer<v1::StartContainerResponse> {
        changing("StartContainer", start_container::answer(self.0.clone(), request.into_inner())).await
    }
    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answer<v1::StopContainerResponse> {
        changing("StopContainer", stop_container::answer(self.0.clone(), request.into_inner())).await
    }
    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        changing("RemoveContainer", remove_container::answer(self.0.clone(), request.into_inner())).await
    }
    async fn list_containers(&self, request: Request<v1::ListContainersRequest>) -> Answer<v1::ListContainersResponse> {
        reading("ListContainers", list_containers::answer(self.0.clone(), request.into_inner())).await
    }
    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        reading("ContainerStatus", container_status::answer(self.0.clone(), request.into_inner())).await
    }
    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        changing("UpdateContainerResources", update_container_resources::answer(self.0.clone(), request.into_inner()))
            .await
    }
    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        changing("ReopenContainerLog", reopen_container_log::answer(self.0.clone(), request.into_inner())).await
    }
    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        reading("ExecSync", exec_sync::answer(self.0.clone(), request.into_inner())).await
    }
    async fn container_stats(&self, request: Request<v1::ContainerStatsRequest>) -> Answer<v1::ContainerStatsResponse> {
        reading("ContainerStats", container_stats::answer(self.0.clone(), request.into_inner())).await
    }
    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        reading("ListContainerStats", list_container_stats::answer(self.0.clone(), request.into_inner())).await
    }

    async fn exec(&self, _: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        refuse("Exec", "use `pinion exec`")
    }
    async fn attach(&self, _: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        refuse("Attach", "use `pinion attach`")
    }
    async fn port_forward(&self, _: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        refuse("PortForward", "reach the pod by its address")
    }
    async fn pod_sandbox_stats(&self, _: Request<v1::PodSandboxStatsRequest>) -> Answer<v1::PodSandboxStatsResponse> {
        refuse("PodSandboxStats", "use ListContainerStats")
    }
    async fn list_pod_sandbox_stats(
        &self,
        _: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        refuse("ListPodSandboxStats", "use ListContainerStats")
    }
    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        refuse("CheckpointContainer", "there is no other way yet")
    }
    async fn checkpoint_pod(&self, _: Request<v1::CheckpointPodRequest>) -> Answer<v1::CheckpointPodResponse> {
        refuse("CheckpointPod", "there is no other way yet")
    }
    async fn restore_pod(&self, _: Request<v1::RestorePodRequest>) -> Answer<v1::RestorePodResponse> {
        refuse("RestorePod", "there is no other way yet")
    }
    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        refuse("ListMetricDescriptors", "use ListContainerStats")
    }
    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        refuse("ListPodSandboxMetrics", "use ListContainerStats")
    }
    async fn update_pod_sandbox_resources(
        &self,
        _: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        refuse("UpdatePodSandboxResources", "use UpdateContainerResources")
    }

    type StreamPodSandboxesStream = Never<v1::StreamPodSandboxesResponse>;
    async fn stream_pod_sandboxes(
        &self,
        _: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        refuse("StreamPodSandboxes", "use ListPodSandbox")
    }
    type StreamContainersStream = Never<v1::StreamContainersResponse>;
    async fn stream_containers(&self, _: Request<v1::StreamContainersRequest>) -> Answer<Self::StreamContainersStream> {
        refuse("StreamContainers", "use ListContainers")
    }
    type StreamContainerStatsStream = Never<v1::StreamContainerStatsResponse>;
    async fn stream_container_stats(
        &self,
        _: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        refuse("StreamContainerStats", "use ListContainerStats")
    }
    type StreamPodSandboxStatsStream = Never<v1::StreamPodSandboxStatsResponse>;
    async fn stream_pod_sandbox_stats(
        &self,
        _: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        refuse("StreamPodSandboxStats", "use ListContainerStats")
    }
    type GetContainerEventsStream = Never<v1::ContainerEventResponse>;
    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Answer<Self::GetContainerEventsStream> {
        refuse("GetContainerEvents", "kubelet polls where it is missing")
    }
    type StreamPodSandboxMetricsStream = Never<v1::StreamPodSandboxMetricsResponse>;
    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        refuse("StreamPodSandboxMetrics", "use ListContainerStats")
    }
}
