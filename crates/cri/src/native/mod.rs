//! `pinion.v1`: what people's command line needs and the CRI has not. One RPC, one file.

mod attach;
mod config;
mod exec;
mod info;
mod kill;
mod load;
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
    answer::{Answer, Shared, Streamed, changing, reading, streaming},
    rpc::Rpc,
};

/// Answers people's command line.
pub(crate) struct Native(pub(crate) Shared);

/// Messages to the client, as they come.
pub(crate) type Outgoing<T> = Streamed<T>;

#[tonic::async_trait]
impl Pinion for Native {
    type PullStream = Outgoing<proto::PullProgress>;
    async fn pull(&self, request: Request<proto::PullRequest>) -> Answer<Self::PullStream> {
        streaming(Rpc::NativePull, &self.0, request, async |state, message| pull::answer(state, message)).await
    }

    async fn load(&self, request: Request<Streaming<proto::Chunk>>) -> Answer<proto::LoadResponse> {
        reading(Rpc::NativeLoad, &self.0, request, load::answer).await
    }

    type SaveStream = Outgoing<proto::Chunk>;
    async fn save(&self, request: Request<proto::SaveRequest>) -> Answer<Self::SaveStream> {
        streaming(Rpc::NativeSave, &self.0, request, async |state, message| save::answer(state, message)).await
    }

    type ExecStream = Outgoing<proto::SessionOutput>;
    async fn exec(&self, request: Request<Streaming<proto::SessionInput>>) -> Answer<Self::ExecStream> {
        streaming(Rpc::NativeExec, &self.0, request, exec::answer).await
    }

    type AttachStream = Outgoing<proto::SessionOutput>;
    async fn attach(&self, request: Request<Streaming<proto::SessionInput>>) -> Answer<Self::AttachStream> {
        streaming(Rpc::NativeAttach, &self.0, request, attach::answer).await
    }

    async fn untag(&self, request: Request<proto::UntagRequest>) -> Answer<proto::UntagResponse> {
        changing(Rpc::NativeUntag, &self.0, request, untag::answer).await
    }

    async fn kill(&self, request: Request<proto::KillRequest>) -> Answer<proto::KillResponse> {
        changing(Rpc::NativeKill, &self.0, request, kill::answer).await
    }

    async fn wait(&self, request: Request<proto::WaitRequest>) -> Answer<proto::WaitResponse> {
        reading(Rpc::NativeWait, &self.0, request, wait::answer).await
    }

    async fn info(&self, request: Request<proto::InfoRequest>) -> Answer<proto::InfoResponse> {
        reading(Rpc::NativeInfo, &self.0, request, info::answer).await
    }

    async fn config(&self, request: Request<proto::ConfigRequest>) -> Answer<proto::ConfigResponse> {
        reading(Rpc::NativeConfig, &self.0, request, config::answer).await
    }

    async fn reload(&self, request: Request<proto::ReloadRequest>) -> Answer<proto::ReloadResponse> {
        changing(Rpc::NativeReload, &self.0, request, reload::answer).await
    }

    async fn upgrade_monitor(
        &self,
        request: Request<proto::UpgradeMonitorRequest>,
    ) -> Answer<proto::UpgradeMonitorResponse> {
        changing(Rpc::NativeUpgradeMonitor, &self.0, request, upgrade_monitor::answer).await
    }

    async fn upgrade_daemon(
        &self,
        request: Request<proto::UpgradeDaemonRequest>,
    ) -> Answer<proto::UpgradeDaemonResponse> {
        changing(Rpc::NativeUpgradeDaemon, &self.0, request, upgrade_daemon::answer).await
    }

    async fn why(&self, request: Request<proto::WhyRequest>) -> Answer<proto::WhyResponse> {
        reading(Rpc::NativeWhy, &self.0, request, why::answer).await
    }
}
