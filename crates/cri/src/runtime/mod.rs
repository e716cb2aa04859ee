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

use cri_proto::{encoded, server::runtime_service_server::RuntimeService, v1};
use tonic::Request;

use crate::{
    answer::{Answer, Shared, Streamed, changing, reading, streaming},
    rpc::Rpc,
};

/// Answers the runtime half of the CRI.
pub(crate) struct Runtime(pub(crate) Shared);

#[tonic::async_trait]
impl RuntimeService for Runtime {
    async fn version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        reading(Rpc::Version, &self.0, request, version::answer).await
    }
    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        reading(Rpc::Status, &self.0, request, status::answer).await
    }
    async fn runtime_config(&self, request: Request<v1::RuntimeConfigRequest>) -> Answer<v1::RuntimeConfigResponse> {
        reading(Rpc::RuntimeConfig, &self.0, request, runtime_config::answer).await
    }
    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        reading(Rpc::UpdateRuntimeConfig, &self.0, request, update_runtime_config::answer).await
    }
    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answer<v1::RunPodSandboxResponse> {
        changing(Rpc::RunPodSandbox, &self.0, request, run_pod_sandbox::answer).await
    }
    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        changing(Rpc::StopPodSandbox, &self.0, request, stop_pod_sandbox::answer).await
    }
    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        changing(Rpc::RemovePodSandbox, &self.0, request, remove_pod_sandbox::answer).await
    }
    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        reading(Rpc::PodSandboxStatus, &self.0, request, pod_sandbox_status::answer).await
    }
    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<encoded::ListPodSandboxResponse> {
        reading(Rpc::ListPodSandbox, &self.0, request, list_pod_sandbox::answer).await
    }
    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        changing(Rpc::CreateContainer, &self.0, request, create_container::answer).await
    }
    async fn start_container(&self, request: Request<v1::StartContainerRequest>) -> Answer<v1::StartContainerResponse> {
        changing(Rpc::StartContainer, &self.0, request, start_container::answer).await
    }
    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answer<v1::StopContainerResponse> {
        changing(Rpc::StopContainer, &self.0, request, stop_container::answer).await
    }
    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        changing(Rpc::RemoveContainer, &self.0, request, remove_container::answer).await
    }
    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<encoded::ListContainersResponse> {
        reading(Rpc::ListContainers, &self.0, request, list_containers::answer).await
    }
    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        reading(Rpc::ContainerStatus, &self.0, request, container_status::answer).await
    }
    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        changing(Rpc::UpdateContainerResources, &self.0, request, update_container_resources::answer).await
    }
    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        changing(Rpc::ReopenContainerLog, &self.0, request, reopen_container_log::answer).await
    }
    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        reading(Rpc::ExecSync, &self.0, request, exec_sync::answer).await
    }
    async fn container_stats(&self, request: Request<v1::ContainerStatsRequest>) -> Answer<v1::ContainerStatsResponse> {
        reading(Rpc::ContainerStats, &self.0, request, container_stats::answer).await
    }
    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<encoded::ListContainerStatsResponse> {
        reading(Rpc::ListContainerStats, &self.0, request, list_container_stats::answer).await
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        reading(Rpc::Exec, &self.0, request, exec::answer).await
    }
    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        reading(Rpc::Attach, &self.0, request, attach::answer).await
    }
    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        reading(Rpc::PortForward, &self.0, request, port_forward::answer).await
    }
    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        reading(Rpc::PodSandboxStats, &self.0, request, pod_sandbox_stats::answer).await
    }
    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<encoded::ListPodSandboxStatsResponse> {
        reading(Rpc::ListPodSandboxStats, &self.0, request, list_pod_sandbox_stats::answer).await
    }
    async fn checkpoint_container(
        &self,
        request: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        changing(Rpc::CheckpointContainer, &self.0, request, checkpoint_container::answer).await
    }
    async fn checkpoint_pod(&self, request: Request<v1::CheckpointPodRequest>) -> Answer<v1::CheckpointPodResponse> {
        changing(Rpc::CheckpointPod, &self.0, request, checkpoint_pod::answer).await
    }
    async fn restore_pod(&self, request: Request<v1::RestorePodRequest>) -> Answer<v1::RestorePodResponse> {
        changing(Rpc::RestorePod, &self.0, request, restore_pod::answer).await
    }
    async fn list_metric_descriptors(
        &self,
        request: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        reading(Rpc::ListMetricDescriptors, &self.0, request, list_metric_descriptors::answer).await
    }
    async fn list_pod_sandbox_metrics(
        &self,
        request: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<encoded::ListPodSandboxMetricsResponse> {
        reading(Rpc::ListPodSandboxMetrics, &self.0, request, list_pod_sandbox_metrics::answer).await
    }
    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        changing(Rpc::UpdatePodSandboxResources, &self.0, request, update_pod_sandbox_resources::answer).await
    }

    type StreamPodSandboxesStream = Streamed<encoded::StreamPodSandboxesResponse>;
    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        streaming(Rpc::StreamPodSandboxes, &self.0, request, stream_pod_sandboxes::answer).await
    }
    type StreamContainersStream = Streamed<encoded::StreamContainersResponse>;
    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        streaming(Rpc::StreamContainers, &self.0, request, stream_containers::answer).await
    }
    type StreamContainerStatsStream = Streamed<encoded::StreamContainerStatsResponse>;
    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        streaming(Rpc::StreamContainerStats, &self.0, request, stream_container_stats::answer).await
    }
    type StreamPodSandboxStatsStream = Streamed<encoded::StreamPodSandboxStatsResponse>;
    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        streaming(Rpc::StreamPodSandboxStats, &self.0, request, stream_pod_sandbox_stats::answer).await
    }
    type GetContainerEventsStream = Streamed<v1::ContainerEventResponse>;
    async fn get_container_events(
        &self,
        request: Request<v1::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        streaming(Rpc::GetContainerEvents, &self.0, request, get_container_events::answer).await
    }
    type StreamPodSandboxMetricsStream = Streamed<encoded::StreamPodSandboxMetricsResponse>;
    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        streaming(Rpc::StreamPodSandboxMetrics, &self.0, request, stream_pod_sandbox_metrics::answer).await
    }
}
