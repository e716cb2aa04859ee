//! `pinion.v1`: what people's command line needs and the CRI has not. One RPC, one file.

mod attach;
mod exec;
mod info;
mod kill;
mod load;
mod pull;
mod save;
mod session;
mod untag;
mod wait;

use std::{pin::Pin, time::Instant};

use cri_proto::pinion::{self as proto, pinion_server::Pinion};
use tokio_stream::Stream;
use tonic::{Request, Status, Streaming};

use crate::answer::{Answer, Shared, changing, reading, told};

/// Answers people's command line.
pub(crate) struct Native(pub(crate) Shared);

/// Messages to the client, as they come.
pub(crate) type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Pinion for Native {
    type PullStream = Outgoing<proto::PullProgress>;
    async fn pull(&self, request: Request<proto::PullRequest>) -> Answer<Self::PullStream> {
        told("Pull", Instant::now(), pull::answer(self.0.clone(), request.into_inner()))
    }

    async fn load(&self, request: Request<Streaming<proto::Chunk>>) -> Answer<proto::LoadResponse> {
        reading("Load", load::answer(self.0.clone(), request.into_inner())).await
    }

    type SaveStream = Outgoing<proto::Chunk>;
    async fn save(&self, request: Request<proto::SaveRequest>) -> Answer<Self::SaveStream> {
        told("Save", Instant::now(), save::answer(self.0.clone(), request.into_inner()))
    }

    type ExecStream = Outgoing<proto::SessionOutput>;
    async fn exec(&self, request: Request<Streaming<proto::SessionInput>>) -> Answer<Self::ExecStream> {
        reading("Exec", exec::answer(self.0.clone(), request.into_inner())).await
    }

    type AttachStream = Outgoing<proto::SessionOutput>;
    async fn attach(&self, request: Request<Streaming<proto::SessionInput>>) -> Answer<Self::AttachStream> {
        reading("Attach", attach::answer(self.0.clone(), request.into_inner())).await
    }

    async fn untag(&self, request: Request<proto::UntagRequest>) -> Answer<proto::UntagResponse> {
        changing("Untag", untag::answer(self.0.clone(), request.into_inner())).await
    }

    async fn kill(&self, request: Request<proto::KillRequest>) -> Answer<proto::KillResponse> {
        changing("Kill", kill::answer(self.0.clone(), request.into_inner())).await
    }

    async fn wait(&self, request: Request<proto::WaitRequest>) -> Answer<proto::WaitResponse> {
        reading("Wait", wait::answer(self.0.clone(), request.into_inner())).await
    }

    async fn info(&self, request: Request<proto::InfoRequest>) -> Answer<proto::InfoResponse> {
        reading("Info", info::answer(self.0.clone(), request.into_inner())).await
    }
}
