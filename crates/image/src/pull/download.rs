//! Downloads of blobs, whose size and digest are verified while they are received.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use telemetry::Counter;
use tokio::sync::mpsc;

use super::growing_file::Writer;
use crate::{
    Digest, Disk, Error, Stage,
    digest::Hasher,
    error::failed_to,
    index::LayerRef,
    manifest::Descriptor,
    progress::Meter,
    registry::{BlobStream, Session},
    single_flight::CancelToken,
};

/// Chunks that may be queued between the network and the disk.
const QUEUE: usize = 32;

/// Downloads a blob of at most `most` bytes into memory, from the endpoint `first` before the others.
pub(super) async fn small(
    session: &Session,
    descriptor: &Descriptor,
    first: usize,
    most: u64,
) -> Result<Vec<u8>, Error> {
    if descriptor.size > most {
        return Err(Error::invalid(format!("{} bytes, at most {most} are accepted", descriptor.size)));
    }
    let mut stream = session.blob(&descriptor.digest, first);
    let mut bytes = Vec::with_capacity(descriptor.size as usize);
    while let Some(chunk) = stream.next().await? {
        if bytes.len() as u64 + chunk.len() as u64 > descriptor.size {
            return Err(Error::corrupt(format!("more than the {} bytes that the manifest states", descriptor.size)));
        }
        bytes.extend_from_slice(&chunk);
    }
    check(&descriptor.digest, &Digest::of(&bytes), descriptor.size, bytes.len() as u64)?;
    Ok(bytes)
}

/// Checks size and digest of what was received.
fn check(expected: &Digest, got: &Digest, size: u64, length: u64) -> Result<(), Error> {
    if length != size {
        return Err(Error::corrupt(format!("{length} bytes received, the manifest states {size}")));
    }
    match got == expected {
        true => Ok(()),
        false => {
            Err(Error::corrupt(format!("digest mismatch: got {got}, want {expected}; the registry's copy is damaged")))
        }
    }
}

/// Downloads the blob of a layer into the file of `target`, whose writer notifies the unpacking side.
pub(super) async fn layer(
    (stream, fetched_bytes): (BlobStream<'_>, &Counter),
    layer: &LayerRef,
    target: (PathBuf, Writer),
    disk: &Disk,
    meter: &Meter,
    cancel: &CancelToken,
) -> Result<(), Error> {
    let (chunks, queue) = mpsc::channel(QUEUE);
    let (path, writer) = target;
    let blob = layer.clone();
    let sink = disk.thread("image-blob", move || sink(&path, &blob, queue, &writer));
    let receive = cancel.guard(receive((stream, fetched_bytes), layer, chunks, meter));
    let (stored, received) = tokio::join!(sink, receive);
    // A full disk closes the queue, after which the result of the network side is meaningless.
    match (stored, received) {
        (Ok(()), received) => received,
        (Err(error), Ok(())) => Err(error),
        (Err(stored), Err(received)) => Err(if stored.kind == crate::ErrorKind::System { stored } else { received }),
    }
}

async fn receive(
    (mut stream, fetched_bytes): (BlobStream<'_>, &Counter),
    layer: &LayerRef,
    chunks: mpsc::Sender<Option<bytes::Bytes>>,
    meter: &Meter,
) -> Result<(), Error> {
    let mut arrived: u64 = 0;
    meter.report(Stage::Downloading, 0);
    while let Some(chunk) = stream.next().await? {
        arrived += chunk.len() as u64;
        fetched_bytes.add(chunk.len() as u64);
        if arrived > layer.size {
            return Err(Error::corrupt(format!("more than the {} bytes that the manifest states", layer.size)));
        }
        meter.report(Stage::Downloading, arrived);
        if chunks.send(Some(chunk)).await.is_err() {
            return Ok(()); // the error of the disk is reported instead
        }
    }
    let _ = chunks.send(None).await;
    Ok(())
}

/// Writes the chunks to the file and digests them, on a blocking thread. A queue that is closed without the final
/// `None` means that the download failed.
fn sink(
    path: &Path,
    layer: &LayerRef,
    mut queue: mpsc::Receiver<Option<bytes::Bytes>>,
    writer: &Writer,
) -> Result<(), Error> {
    let mut file = File::options().write(true).open(path).map_err(failed_to("open", path))?;
    let mut hasher = Hasher::new();
    let mut length = 0;
    loop {
        match queue.blocking_recv() {
            Some(Some(chunk)) => {
                file.write_all(&chunk).map_err(failed_to("write", path))?;
                hasher.update(&chunk);
                length += chunk.len() as u64;
                writer.written(chunk.len() as u64);
            }
            Some(None) => break,
            None => return Err(Error::unavailable("the download was aborted")),
        }
    }
    let checked = check(&layer.blob, &hasher.finish(), layer.size, length);
    writer.end(checked.clone());
    checked
}
