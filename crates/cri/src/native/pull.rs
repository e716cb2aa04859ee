use std::sync::Arc;

use cri_proto::pinion::{self as proto, pull_progress::Stage as ProtoStage};
use pod::{Credentials, LayerProgress, Stage};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Outgoing;
use crate::{
    Failure,
    handler::{Outcome, Shared},
};

type Sender = mpsc::Sender<Result<proto::PullProgress, Status>>;

/// Pulls an image and reports the progress of each layer; the last message has the image's id. The pull is cancelled
/// when its client disconnects, as users expect of Ctrl-C; finished layers are kept for the next attempt.
pub(super) fn handle(state: Shared, request: proto::PullRequest) -> Outcome<Outgoing<proto::PullProgress>> {
    if request.reference.is_empty() {
        return Err(Failure::invalid("reference", "must not be empty"));
    }
    let (sender, receiver) = mpsc::channel(256);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = pull(state, request, &sender) => {}
        }
    });
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

async fn pull(state: Shared, request: proto::PullRequest, sender: &Sender) {
    let credentials = (!request.username.is_empty() || !request.password.is_empty()).then(|| Credentials {
        username: request.username,
        password: request.password,
        ..Credentials::default()
    });
    let progress = {
        let sender = sender.clone();
        // A slow client misses intermediate steps; the pull never waits for it.
        Arc::new(move |layer: LayerProgress| drop(sender.try_send(Ok(message(layer)))))
    };
    let pulled = state.engine.pull_image(&request.reference, credentials.as_ref(), Some(progress)).await;
    let last = match pulled {
        Ok(image) => Ok(proto::PullProgress { image_id: image.id, ..Default::default() }),
        Err(error) => Err(Failure::from(error).into()),
    };
    // The client may have disconnected.
    let _ = sender.send(last).await;
}

fn message(layer: LayerProgress) -> proto::PullProgress {
    let stage = match layer.stage {
        Stage::Waiting => ProtoStage::Waiting,
        Stage::Downloading => ProtoStage::Downloading,
        Stage::Unpacking => ProtoStage::Unpacking,
        Stage::Done => ProtoStage::Done,
        Stage::Exists => ProtoStage::Exists,
    };
    proto::PullProgress {
        layer: layer.digest,
        stage: stage.into(),
        done: layer.done,
        total: layer.total,
        image_id: String::new(),
    }
}
