//! `RuntimeService`: maps each RPC to the function that handles it, and to how it is handled (see [`crate::handler`]).

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
    deadline,
    handler::{RpcResult, Shared, Streamed, handle_cancellable, handle_stream, handle_to_completion},
    rpc::Rpc,
};

/// Implements the runtime service of the CRI.
pub(crate) struct Runtime(pub(crate) Shared);

#[tonic::async_trait]
impl RuntimeService for Runtime {
    async fn version(&self, request: Request<v1::VersionRequest>) -> RpcResult<v1::VersionResponse> {
        handle_cancellable(Rpc::Version, &self.0, request, version::handle).await
    }
    async fn status(&self, request: Request<v1::StatusRequest>) -> RpcResult<v1::StatusResponse> {
        handle_cancellable(Rpc::Status, &self.0, request, status::handle).await
    }
    async fn runtime_config(&self, request: Request<v1::RuntimeConfigRequest>) -> RpcResult<v1::RuntimeConfigResponse> {
        handle_cancellable(Rpc::RuntimeConfig, &self.0, request, runtime_config::handle).await
    }
    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> RpcResult<v1::UpdateRuntimeConfigResponse> {
        handle_cancellable(Rpc::UpdateRuntimeConfig, &self.0, request, update_runtime_config::handle).await
    }
    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> RpcResult<v1::RunPodSandboxResponse> {
        let networks = run_pod_sandbox::networks(request.metadata());
        let work = |state, message| run_pod_sandbox::handle(state, message, networks);
        handle_to_completion(Rpc::RunPodSandbox, &self.0, request, work).await
    }
    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> RpcResult<v1::StopPodSandboxResponse> {
        handle_to_completion(Rpc::StopPodSandbox, &self.0, request, stop_pod_sandbox::handle).await
    }
    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> RpcResult<v1::RemovePodSandboxResponse> {
        handle_to_completion(Rpc::RemovePodSandbox, &self.0, request, remove_pod_sandbox::handle).await
    }
    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> RpcResult<v1::PodSandboxStatusResponse> {
        handle_cancellable(Rpc::PodSandboxStatus, &self.0, request, pod_sandbox_status::handle).await
    }
    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> RpcResult<encoded::ListPodSandboxResponse> {
        handle_cancellable(Rpc::ListPodSandbox, &self.0, request, list_pod_sandbox::handle).await
    }
    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> RpcResult<v1::CreateContainerResponse> {
        handle_to_completion(Rpc::CreateContainer, &self.0, request, create_container::handle).await
    }
    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> RpcResult<v1::StartContainerResponse> {
        handle_to_completion(Rpc::StartContainer, &self.0, request, start_container::handle).await
    }
    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> RpcResult<v1::StopContainerResponse> {
        handle_to_completion(Rpc::StopContainer, &self.0, request, stop_container::handle).await
    }
    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> RpcResult<v1::RemoveContainerResponse> {
        handle_to_completion(Rpc::RemoveContainer, &self.0, request, remove_container::handle).await
    }
    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> RpcResult<encoded::ListContainersResponse> {
        handle_cancellable(Rpc::ListContainers, &self.0, request, list_containers::handle).await
    }
    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> RpcResult<v1::ContainerStatusResponse> {
        handle_cancellable(Rpc::ContainerStatus, &self.0, request, container_status::handle).await
    }
    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> RpcResult<v1::UpdateContainerResourcesResponse> {
        handle_to_completion(Rpc::UpdateContainerResources, &self.0, request, update_container_resources::handle).await
    }
    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> RpcResult<v1::ReopenContainerLogResponse> {
        handle_to_completion(Rpc::ReopenContainerLog, &self.0, request, reopen_container_log::handle).await
    }
    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> RpcResult<v1::ExecSyncResponse> {
        handle_cancellable(Rpc::ExecSync, &self.0, request, exec_sync::handle).await
    }
    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> RpcResult<v1::ContainerStatsResponse> {
        handle_cancellable(Rpc::ContainerStats, &self.0, request, container_stats::handle).await
    }
    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> RpcResult<encoded::ListContainerStatsResponse> {
        handle_cancellable(Rpc::ListContainerStats, &self.0, request, list_container_stats::handle).await
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> RpcResult<v1::ExecResponse> {
        handle_cancellable(Rpc::Exec, &self.0, request, exec::handle).await
    }
    async fn attach(&self, request: Request<v1::AttachRequest>) -> RpcResult<v1::AttachResponse> {
        handle_cancellable(Rpc::Attach, &self.0, request, attach::handle).await
    }
    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> RpcResult<v1::PortForwardResponse> {
        handle_cancellable(Rpc::PortForward, &self.0, request, port_forward::handle).await
    }
    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> RpcResult<v1::PodSandboxStatsResponse> {
        handle_cancellable(Rpc::PodSandboxStats, &self.0, request, pod_sandbox_stats::handle).await
    }
    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> RpcResult<encoded::ListPodSandboxStatsResponse> {
        handle_cancellable(Rpc::ListPodSandboxStats, &self.0, request, list_pod_sandbox_stats::handle).await
    }
    async fn checkpoint_container(
        &self,
        request: Request<v1::CheckpointContainerRequest>,
    ) -> RpcResult<v1::CheckpointContainerResponse> {
        handle_to_completion(Rpc::CheckpointContainer, &self.0, request, checkpoint_container::handle).await
    }
    async fn checkpoint_pod(&self, request: Request<v1::CheckpointPodRequest>) -> RpcResult<v1::CheckpointPodResponse> {
        let limit = deadline::limit(request.metadata());
        let handle = |state, request| checkpoint_pod::handle(state, request, limit);
        handle_cancellable(Rpc::CheckpointPod, &self.0, request, handle).await
    }
    async fn restore_pod(&self, request: Request<v1::RestorePodRequest>) -> RpcResult<v1::RestorePodResponse> {
        let limit = deadline::limit(request.metadata());
        let handle = |state, request| restore_pod::handle(state, request, limit);
        handle_cancellable(Rpc::RestorePod, &self.0, request, handle).await
    }
    async fn list_metric_descriptors(
        &self,
        request: Request<v1::ListMetricDescriptorsRequest>,
    ) -> RpcResult<v1::ListMetricDescriptorsResponse> {
        handle_cancellable(Rpc::ListMetricDescriptors, &self.0, request, list_metric_descriptors::handle).await
    }
    async fn list_pod_sandbox_metrics(
        &self,
        request: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> RpcResult<encoded::ListPodSandboxMetricsResponse> {
        handle_cancellable(Rpc::ListPodSandboxMetrics, &self.0, request, list_pod_sandbox_metrics::handle).await
    }
    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> RpcResult<v1::UpdatePodSandboxResourcesResponse> {
        handle_to_completion(Rpc::UpdatePodSandboxResources, &self.0, request, update_pod_sandbox_resources::handle)
            .await
    }

    type StreamPodSandboxesStream = Streamed<encoded::StreamPodSandboxesResponse>;
    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> RpcResult<Self::StreamPodSandboxesStream> {
        handle_stream(Rpc::StreamPodSandboxes, &self.0, request, stream_pod_sandboxes::handle).await
    }
    type StreamContainersStream = Streamed<encoded::StreamContainersResponse>;
    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> RpcResult<Self::StreamContainersStream> {
        handle_stream(Rpc::StreamContainers, &self.0, request, stream_containers::handle).await
    }
    type StreamContainerStatsStream = Streamed<encoded::StreamContainerStatsResponse>;
    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> RpcResult<Self::StreamContainerStatsStream> {
        handle_stream(Rpc::StreamContainerStats, &self.0, request, stream_container_stats::handle).await
    }
    type StreamPodSandboxStatsStream = Streamed<encoded::StreamPodSandboxStatsResponse>;
    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxStatsStream> {
        handle_stream(Rpc::StreamPodSandboxStats, &self.0, request, stream_pod_sandbox_stats::handle).await
    }
    type GetContainerEventsStream = Streamed<v1::ContainerEventResponse>;
    async fn get_container_events(
        &self,
        request: Request<v1::GetEventsRequest>,
    ) -> RpcResult<Self::GetContainerEventsStream> {
        handle_stream(Rpc::GetContainerEvents, &self.0, request, get_container_events::handle).await
    }
    type StreamPodSandboxMetricsStream = Streamed<encoded::StreamPodSandboxMetricsResponse>;
    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxMetricsStream> {
        handle_stream(Rpc::StreamPodSandboxMetrics, &self.0, request, stream_pod_sandbox_metrics::handle).await
    }
}
