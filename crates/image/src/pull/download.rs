//! Blobs from the registry to the disk: size and digest checked on the way.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use tokio::sync::mpsc;

use super::growing::Writer;
use crate::{
    Digest, Disk, Error, Stage,
    digest::Hasher,
    error::at,
    flight::Cancel,
    index::LayerRef,
    manifest::Descriptor,
    progress::Meter,
    registry::{BlobStream, Session},
};

/// Chunks on their way from the network to the disk.
const QUEUE: usize = 32;

/// A small blob, into memory.
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
            return Err(Error::corrupt(format!("more than the {} bytes that the manifest says", descriptor.size)));
        }
        bytes.extend_from_slice(&chunk);
    }
    check(&descriptor.digest, &Digest::of(&bytes), descriptor.size, bytes.len() as u64)?;
    Ok(bytes)
}

/// Size and digest of what arrived.
fn check(wanted: &Digest, got: &Digest, size: u64, length: u64) -> Result<(), Error> {
    if length != size {
        return Err(Error::corrupt(format!("{length} bytes arrived, the manifest says {size}")));
    }
    match got == wanted {
        true => Ok(()),
        false => {
            Err(Error::corrupt(format!("digest mismatch: got {got}, want {wanted}; the registry's copy is damaged")))
        }
    }
}

/// A layer's blob, into the file `path`, of which `writer` notifies the unpacking side.
pub(super) async fn layer(
    (session, stream): (&Session, BlobStream<'_>),
    layer: &LayerRef,
    target: (PathBuf, Writer),
    disk: &Disk,
    meter: &Meter,
    cancel: &Cancel,
) -> Result<(), Error> {
    let (chunks, queue) = mpsc::channel(QUEUE);
    let (path, writer) = target;
    let own = layer.clone();
    let sink = disk.thread("image-blob", move || sink(&path, &own, queue, &writer));
    let receive = cancel.guard(receive((session, stream), layer, chunks, meter));
    let (stored, received) = tokio::join!(sink, receive);
    // A full disk closes the queue; the network's end then says nothing.
    match (stored, received) {
        (Ok(()), received) => received,
        (Err(error), Ok(())) => Err(error),
        (Err(stored), Err(received)) => Err(if stored.kind == crate::ErrorKind::System { stored } else { received }),
    }
}

async fn receive(
    (session, mut stream): (&Session, BlobStream<'_>),
    layer: &LayerRef,
    chunks: mpsc::Sender<Option<bytes::Bytes>>,
    meter: &Meter,
) -> Result<(), Error> {
    let fetched = &session.figures().fetched;
    let mut arrived: u64 = 0;
    meter.report(Stage::Downloading, 0);
    while let Some(chunk) = stream.next().await? {
        arrived += chunk.len() as u64;
        fetched.add(chunk.len() as u64);
        if arrived > layer.size {
            return Err(Error::corrupt(format!("more than the {} bytes that the manifest says", layer.size)));
        }
        meter.report(Stage::Downloading, arrived);
        if chunks.send(Some(chunk)).await.is_err() {
            return Ok(()); // the disk's error is the one to tell
        }
    }
    let _ = chunks.send(None).await;
    Ok(())
}

/// Writes and digests on a thread of its own. Without the closing `None`, the download failed.
fn sink(
    path: &Path,
    layer: &LayerRef,
    mut queue: mpsc::Receiver<Option<bytes::Bytes>>,
    writer: &Writer,
) -> Result<(), Error> {
    let mut file = File::options().write(true).open(path).map_err(at("open", path))?;
    let mut hasher = Hasher::new();
    let mut length = 0;
    loop {
        match queue.blocking_recv() {
            Some(Some(chunk)) => {
                file.write_all(&chunk).map_err(at("write", path))?;
                hasher.update(&chunk);
                length += chunk.len() as u64;
                writer.written(chunk.len() as u64);
            }
            Some(None) => break,
            None => return Err(Error::unavailable("the download was given up")),
        }
    }
    let checked = check(&layer.blob, &hasher.finish(), layer.size, length);
    writer.end(checked.clone());
    checked
}
