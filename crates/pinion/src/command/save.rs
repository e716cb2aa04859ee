use std::path::{Path, PathBuf};

use cri_proto::pinion::{Chunk, SaveRequest};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tonic::Streaming;

use crate::{Client, Failure, terminal};

/// Arguments of `pinion save`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The archive: a tar that Docker and OCI tools read [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Names or ids
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    if args.output.is_none() && terminal::is_output() {
        return Err(Failure::usage("save: an archive is nothing for a terminal; give -o FILE"));
    }
    let chunks = client.native.save(SaveRequest { names: args.images }).await?.into_inner();
    match args.output {
        None => copy(chunks, tokio::io::stdout()).await?,
        Some(path) => to_file(chunks, &path).await?,
    }
    Ok(0)
}

/// Under another name first: a half archive must not look like a whole one.
async fn to_file(chunks: Streaming<Chunk>, path: &Path) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let wrong = |error: std::io::Error| Failure::new(format!("write {}: {error}", path.display()));
    let file = tokio::fs::File::create(&part).await.map_err(wrong)?;
    match copy(chunks, file).await {
        Ok(()) => tokio::fs::rename(&part, path).await.map_err(wrong),
        Err(failure) => {
            // The failure that counts is the first one.
            let _ = tokio::fs::remove_file(&part).await;
            Err(failure)
        }
    }
}

async fn copy(mut chunks: Streaming<Chunk>, mut to: impl AsyncWrite + Unpin) -> Result<(), Failure> {
    while let Some(chunk) = chunks.message().await? {
        to.write_all(&chunk.data).await?;
    }
    to.flush().await?;
    Ok(())
}
