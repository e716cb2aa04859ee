//! `pinion.v1`: what the command line needs and the CRI lacks. Each RPC has a file.

mod attach;
mod check_pod;
mod config;
mod exec;
mod info;
mod kill;
mod load;
mod networks;
mod pull;
mod reload;
mod save;
mod session;
mod untag;
mod upgrade_daemon;
mod upgrade_monitor;
mod wait;
mod why;

use cri_proto::pinion::{self as proto, pinion_server::Pinion};
use tonic::{Request, Streaming};

use crate::{
    handler::{RpcResult, Shared, Streamed, handle_cancellable, handle_stream, handle_to_completion},
    rpc::Rpc,
};

/// Implements the service of the command line.
pub(crate) struct Native(pub(crate) Shared);

/// A stream of messages to the client.
pub(crate) type Outgoing<T> = Streamed<T>;

#[tonic::async_trait]
impl Pinion for Native {
    type PullStream = Outgoing<proto::PullProgress>;
    async fn pull(&self, request: Request<proto::PullRequest>) -> RpcResult<Self::PullStream> {
        handle_stream(Rpc::NativePull, &self.0, request, async |state, message| pull::handle(state, message)).await
    }

    async fn load(&self, request: Request<Streaming<proto::Chunk>>) -> RpcResult<proto::LoadResponse> {
        handle_cancellable(Rpc::NativeLoad, &self.0, request, load::handle).await
    }

    type SaveStream = Outgoing<proto::Chunk>;
    async fn save(&self, request: Request<proto::SaveRequest>) -> RpcResult<Self::SaveStream> {
        handle_stream(Rpc::NativeSave, &self.0, request, async |state, message| save::handle(state, message)).await
    }

    type ExecStream = Outgoing<proto::SessionOutput>;
    async fn exec(&self, request: Request<Streaming<proto::SessionInput>>) -> RpcResult<Self::ExecStream> {
        handle_stream(Rpc::NativeExec, &self.0, request, exec::handle).await
    }

    type AttachStream = Outgoing<proto::SessionOutput>;
    async fn attach(&self, request: Request<Streaming<proto::SessionInput>>) -> RpcResult<Self::AttachStream> {
        handle_stream(Rpc::NativeAttach, &self.0, request, attach::handle).await
    }

    async fn untag(&self, request: Request<proto::UntagRequest>) -> RpcResult<proto::UntagResponse> {
        handle_to_completion(Rpc::NativeUntag, &self.0, request, untag::handle).await
    }

    async fn kill(&self, request: Request<proto::KillRequest>) -> RpcResult<proto::KillResponse> {
        handle_to_completion(Rpc::NativeKill, &self.0, request, kill::handle).await
    }

    async fn wait(&self, request: Request<proto::WaitRequest>) -> RpcResult<proto::WaitResponse> {
        handle_cancellable(Rpc::NativeWait, &self.0, request, wait::handle).await
    }

    async fn info(&self, request: Request<proto::InfoRequest>) -> RpcResult<proto::InfoResponse> {
        handle_cancellable(Rpc::NativeInfo, &self.0, request, info::handle).await
    }

    async fn config(&self, request: Request<proto::ConfigRequest>) -> RpcResult<proto::ConfigResponse> {
        handle_cancellable(Rpc::NativeConfig, &self.0, request, config::handle).await
    }

    async fn reload(&self, request: Request<proto::ReloadRequest>) -> RpcResult<proto::ReloadResponse> {
        handle_to_completion(Rpc::NativeReload, &self.0, request, reload::handle).await
    }

    async fn upgrade_monitor(
        &self,
        request: Request<proto::UpgradeMonitorRequest>,
    ) -> RpcResult<proto::UpgradeMonitorResponse> {
        handle_to_completion(Rpc::NativeUpgradeMonitor, &self.0, request, upgrade_monitor::handle).await
    }

    async fn upgrade_daemon(
        &self,
        request: Request<proto::UpgradeDaemonRequest>,
    ) -> RpcResult<proto::UpgradeDaemonResponse> {
        handle_to_completion(Rpc::NativeUpgradeDaemon, &self.0, request, upgrade_daemon::handle).await
    }

    async fn check_pod(&self, request: Request<proto::CheckPodRequest>) -> RpcResult<proto::CheckPodResponse> {
        handle_cancellable(Rpc::NativeCheckPod, &self.0, request, check_pod::handle).await
    }

    async fn create_network(
        &self,
        request: Request<proto::CreateNetworkRequest>,
    ) -> RpcResult<proto::CreateNetworkResponse> {
        handle_to_completion(Rpc::NativeCreateNetwork, &self.0, request, networks::create).await
    }

    async fn list_networks(
        &self,
        request: Request<proto::ListNetworksRequest>,
    ) -> RpcResult<proto::ListNetworksResponse> {
        handle_cancellable(Rpc::NativeListNetworks, &self.0, request, networks::list).await
    }

    async fn inspect_network(
        &self,
        request: Request<proto::InspectNetworkRequest>,
    ) -> RpcResult<proto::InspectNetworkResponse> {
        handle_cancellable(Rpc::NativeInspectNetwork, &self.0, request, networks::inspect).await
    }

    async fn remove_network(
        &self,
        request: Request<proto::RemoveNetworkRequest>,
    ) -> RpcResult<proto::RemoveNetworkResponse> {
        handle_to_completion(Rpc::NativeRemoveNetwork, &self.0, request, networks::remove).await
    }

    async fn connect_network(
        &self,
        request: Request<proto::ConnectNetworkRequest>,
    ) -> RpcResult<proto::ConnectNetworkResponse> {
        handle_to_completion(Rpc::NativeConnectNetwork, &self.0, request, networks::connect).await
    }

    async fn disconnect_network(
        &self,
        request: Request<proto::DisconnectNetworkRequest>,
    ) -> RpcResult<proto::DisconnectNetworkResponse> {
        handle_to_completion(Rpc::NativeDisconnectNetwork, &self.0, request, networks::disconnect).await
    }

    async fn why(&self, request: Request<proto::WhyRequest>) -> RpcResult<proto::WhyResponse> {
        handle_cancellable(Rpc::NativeWhy, &self.0, request, why::handle).await
    }
}
