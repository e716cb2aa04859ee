//! `RuntimeService`: this file only says which function answers which RPC, and how (see [`crate::answer`]).

mod attach;
mod checkpoint_container;
mod checkpoint_pod;
mod container_stats;
mod container_status;
mod create_container;
mod exec;
mod exec_sync;
mod get_container_events;
mod list_container_stats;
mod list_containers;
mod list_metric_descriptors;
mod list_pod_sandbox;
mod list_pod_sandbox_metrics;
mod list_pod_sandbox_stats;
mod pod_sandbox_stats;
mod pod_sandbox_status;
mod port_forward;
mod remove_container;
mod remove_pod_sandbox;
mod reopen_container_log;
mod restore_pod;
mod run_pod_sandbox;
mod runtime_config;
mod start_container;
mod status;
mod stop_container;
mod stop_pod_sandbox;
mod stream_container_stats;
mod stream_containers;
mod stream_pod_sandbox_metrics;
mod stream_pod_sandbox_stats;
mod stream_pod_sandboxes;
mod update_container_resources;
mod update_pod_sandbox_resources;
mod update_runtime_config;
mod version;

use cri_proto::v1::{self, runtime_service_server::RuntimeService};
use tonic::Request;

use crate::answer::{Answer, Shared, Streamed, changing, reading};

/// Answers the runtime half of the CRI.
pub(crate) struct Runtime(pub(crate) Shared);

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

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        reading("Exec", exec::answer(self.0.clone(), request.into_inner())).await
    }
    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        reading("Attach", attach::answer(self.0.clone(), request.into_inner())).await
    }
    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        reading("PortForward", port_forward::answer(self.0.clone(), request.into_inner())).await
    }
    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        reading("PodSandboxStats", pod_sandbox_stats::answer(self.0.clone(), request.into_inner())).await
    }
    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        reading("ListPodSandboxStats", list_pod_sandbox_stats::answer(self.0.clone(), request.into_inner())).await
    }
    async fn checkpoint_container(
        &self,
        request: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        changing("CheckpointContainer", checkpoint_container::answer(self.0.clone(), request.into_inner())).await
    }
    async fn checkpoint_pod(&self, request: Request<v1::CheckpointPodRequest>) -> Answer<v1::CheckpointPodResponse> {
        changing("CheckpointPod", checkpoint_pod::answer(self.0.clone(), request.into_inner())).await
    }
    async fn restore_pod(&self, request: Request<v1::RestorePodRequest>) -> Answer<v1::RestorePodResponse> {
        changing("RestorePod", restore_pod::answer(self.0.clone(), request.into_inner())).await
    }
    async fn list_metric_descriptors(
        &self,
        request: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        reading("ListMetricDescriptors", list_metric_descriptors::answer(self.0.clone(), request.into_inner())).await
    }
    async fn list_pod_sandbox_metrics(
        &self,
        request: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        reading("ListPodSandboxMetrics", list_pod_sandbox_metrics::answer(self.0.clone(), request.into_inner())).await
    }
    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        changing(
            "UpdatePodSandboxResources",
            update_pod_sandbox_resources::answer(self.0.clone(), request.into_inner()),
        )
        .await
    }

    type StreamPodSandboxesStream = Streamed<v1::StreamPodSandboxesResponse>;
    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        reading("StreamPodSandboxes", stream_pod_sandboxes::answer(self.0.clone(), request.into_inner())).await
    }
    type StreamContainersStream = Streamed<v1::StreamContainersResponse>;
    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        reading("StreamContainers", stream_containers::answer(self.0.clone(), request.into_inner())).await
    }
    type StreamContainerStatsStream = Streamed<v1::StreamContainerStatsResponse>;
    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        reading("StreamContainerStats", stream_container_stats::answer(self.0.clone(), request.into_inner())).await
    }
    type StreamPodSandboxStatsStream = Streamed<v1::StreamPodSandboxStatsResponse>;
    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        reading("StreamPodSandboxStats", stream_pod_sandbox_stats::answer(self.0.clone(), request.into_inner())).await
    }
    type GetContainerEventsStream = Streamed<v1::ContainerEventResponse>;
    async fn get_container_events(
        &self,
        request: Request<v1::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        reading("GetContainerEvents", get_container_events::answer(self.0.clone(), request.into_inner())).await
    }
    type StreamPodSandboxMetricsStream = Streamed<v1::StreamPodSandboxMetricsResponse>;
    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        reading("StreamPodSandboxMetrics", stream_pod_sandbox_metrics::answer(self.0.clone(), request.into_inner()))
            .await
    }
}
