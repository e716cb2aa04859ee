//! Imports the images of another engine, one archive each, so that one that fails does not affect the others.

use std::{
    collections::HashSet,
    io::{self, Write},
};

use cri_proto::{pinion::Chunk, v1};
use migrate::{Archive, StoredImage};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::{Client, Failure, human, output, table::printable};

/// Size of the data in one message, in bytes.
const CHUNK: usize = 256 * 1024;

/// What happened to an image, or would happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// It would be imported.
    Import,
    /// It was imported.
    Imported,
    /// Pinion has it already.
    Present,
    /// It is not complete in the store: it has to be pulled.
    Pull,
    /// The daemon refused it.
    Failed,
}

/// An image and what happened to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageOutcome {
    pub(super) action: Action,
    id: String,
    names: Vec<String>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ImageOutcome {
    fn of(image: &StoredImage, action: Action, reason: Option<String>) -> Self {
        let bytes = image.archive.as_ref().map_or(0, Archive::size);
        Self { action, id: image.id.clone(), names: image.names.clone(), bytes, reason }
    }

    /// Describes the outcome in one line.
    pub(super) fn line(&self) -> String {
        let name = printable(self.names.first().unwrap_or(&self.id));
        let reason = || printable(self.reason.as_deref().unwrap_or_default());
        match self.action {
            Action::Import => format!("  import  {name} ({})", human::size(self.bytes)),
            Action::Imported => format!("  imported {name} ({})", human::size(self.bytes)),
            Action::Present => format!("  present {name}"),
            Action::Pull => format!("  pull    {name}: {}; run: pinion pull {name}", reason()),
            Action::Failed => format!("  failed  {name}: {}; run: pinion pull {name}", reason()),
        }
    }
}

/// Returns what would happen to an image.
pub(super) fn planned(image: StoredImage) -> ImageOutcome {
    match &image.archive {
        Ok(_) => ImageOutcome::of(&image, Action::Import, None),
        Err(reason) => ImageOutcome::of(&image, Action::Pull, Some(reason.clone())),
    }
}

/// Imports every image that is complete, and prints a line for each.
pub(super) async fn run(mut client: Client, images: Vec<StoredImage>) -> Result<Vec<ImageOutcome>, Failure> {
    let present = present(&mut client).await?;
    let (mut blobs, mut outcomes) = (HashSet::new(), Vec::with_capacity(images.len()));
    for mut image in images {
        let outcome = match &mut image.archive {
            Err(reason) => (Action::Pull, Some(reason.clone())),
            Ok(_) if is_present(&image.id, &image.names, &present) => (Action::Present, None),
            Ok(archive) => {
                let mut archive = archive.clone();
                let own: Vec<String> = archive.blobs().map(str::to_owned).collect();
                // Images share layers; the daemon takes those that it has from its own store.
                archive.omit(|blob| blobs.contains(blob));
                match send(&mut client, archive).await {
                    Ok(()) => {
                        blobs.extend(own);
                        (Action::Imported, None)
                    }
                    Err(failure) if failure.is_quiet() => return Err(failure),
                    Err(failure) => (Action::Failed, Some(failure.to_string())),
                }
            }
        };
        let outcome = ImageOutcome::of(&image, outcome.0, outcome.1);
        if !client.json {
            output::line(&outcome.line())?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Returns the names of all images of the daemon, each with the id.
async fn present(client: &mut Client) -> Result<HashSet<(String, String)>, Failure> {
    let response = client.images.list_images(v1::ListImagesRequest::default()).await?.into_inner();
    let names = response.images.into_iter().flat_map(|image| {
        let names = image.repo_tags.into_iter().chain(image.repo_digests);
        names.map(|name| (name, image.id.clone())).collect::<Vec<_>>()
    });
    Ok(names.collect())
}

/// Whether the daemon has an image of this id with all of these names. For an image of a content store, whose id is that
/// of a manifest or an index, a name with the digest must be listed with the tag.
fn is_present(id: &str, names: &[String], present: &HashSet<(String, String)>) -> bool {
    names.iter().all(|name| {
        present.iter().any(|(known, image)| {
            let repository = name.split_once('@').map_or_else(|| without_tag(name), |(repository, _)| repository);
            let pinned = (format!("{repository}@{id}"), image.clone());
            known == name && (image == id || present.contains(&pinned))
        })
    })
}

fn without_tag(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

/// Sends an archive to the daemon, which checks all digests.
async fn send(client: &mut Client, archive: Archive) -> Result<(), Failure> {
    let (sender, receiver) = mpsc::channel(8);
    let writing = offload::blocking(move || {
        let mut writer = io::BufWriter::with_capacity(CHUNK, Chunks(sender));
        let written = archive.write(&mut writer);
        written.and_then(|()| {
            writer.flush().map_err(|source| migrate::Error::Io {
                operation: "write",
                path: "the archive".into(),
                source,
            })
        })
    });
    let (loaded, written) = tokio::join!(client.native.load(ReceiverStream::new(receiver)), writing);
    let written = written.map_err(|error| Failure::new(error.to_string()))?;
    match (loaded, written) {
        (Ok(_), Ok(())) => Ok(()),
        // The daemon reports a truncated archive; the reason is here.
        (_, Err(error)) if !is_closed(&error) => Err(Failure::new(error.to_string())),
        (Err(status), _) => Err(status.into()),
        (Ok(_), Err(error)) => Err(Failure::new(error.to_string())),
    }
}

/// Whether writing ended because the daemon stopped reading; its response has the reason.
fn is_closed(error: &migrate::Error) -> bool {
    matches!(error, migrate::Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes messages to a channel.
struct Chunks(mpsc::Sender<Chunk>);

impl Write for Chunks {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let chunk = Chunk { data: data[..data.len().min(CHUNK)].to_vec() };
        let length = chunk.data.len();
        self.0.blocking_send(chunk).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_present_if_every_name_refers_to_it() {
        let pair = |name: &str, id: &str| (name.to_owned(), id.to_owned());
        let present: HashSet<_> =
            [pair("r/a:1", "sha256:c"), pair("r/a@sha256:m", "sha256:c"), pair("r/b:1", "sha256:d")].into();
        let is = |id: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            is_present(id, &names, &present)
        };
        assert!(is("sha256:m", &["r/a:1", "r/a@sha256:m"]) && is("sha256:d", &["r/b:1"]));
        assert!(!is("sha256:x", &["r/a:1"]) && !is("sha256:m", &["r/a:1", "r/a:2"]) && !is("sha256:m", &["r/b:1"]));
        assert_eq!(["host:5000/a", "host:5000/a:1", "a"].map(without_tag), ["host:5000/a", "host:5000/a", "a"]);
    }
}
