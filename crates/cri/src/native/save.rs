use cri_proto::pinion as proto;
use tokio::{io::AsyncReadExt, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Outgoing;
use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Bytes per message.
const CHUNK: usize = 256 * 1024;

/// Exports images as one tar archive. A failure after the first byte ends the stream with its status.
pub(super) fn handle(state: Shared, request: proto::SaveRequest) -> Outcome<Outgoing<proto::Chunk>> {
    if request.names.is_empty() {
        return Err(Failure::invalid("names", "must not be empty"));
    }
    for name in &request.names {
        if state.engine.images().find(name)?.is_none() {
            return Err(Failure::not_found(format!("save image {name:?}: no such image; see pinion images")));
        }
    }
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(send(state, request.names, sender));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// Sends what the export writes into a pipe. When the client disconnects, both ends of the pipe are dropped.
async fn send(state: Shared, names: Vec<String>, sender: mpsc::Sender<Result<proto::Chunk, Status>>) {
    let (mut writer, mut reader) = tokio::io::duplex(CHUNK);
    let export = async move { state.engine.images().export(&names, &mut writer).await };
    let copy = async {
        loop {
            let mut data = Vec::with_capacity(CHUNK);
            match reader.read_buf(&mut data).await {
                Ok(0) | Err(_) => return true,
                Ok(_) if sender.send(Ok(proto::Chunk { data })).await.is_err() => return false,
                Ok(_) => {}
            }
        }
    };
    tokio::pin!(export, copy);
    let exported = tokio::select! {
        biased;
        false = &mut copy => return,
        exported = &mut export => exported,
    };
    if let Err(error) = exported {
        let _ = sender.send(Err(Failure::from(error).into())).await;
        return;
    }
    copy.await;
}
