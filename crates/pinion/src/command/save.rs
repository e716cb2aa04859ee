use std::path::{Path, PathBuf};

use cri_proto::pinion::{Chunk, SaveRequest};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tonic::Streaming;

use crate::{Client, Failure, terminal};

/// Arguments of `pinion save`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Archive file, a tar for Docker and OCI tools [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Names or ids
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    if args.output.is_none() && terminal::is_output() {
        return Err(Failure::usage("save: cannot write an archive to a terminal; use -o FILE"));
    }
    let chunks = client.native.save(SaveRequest { names: args.images }).await?.into_inner();
    match args.output {
        None => copy(chunks, tokio::io::stdout()).await?,
        Some(path) => to_file(chunks, &path).await?,
    }
    Ok(0)
}

/// Writes to another name first and renames the file, so that an incomplete archive is not mistaken for a complete one.
async fn to_file(chunks: Streaming<Chunk>, path: &Path) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let failed = |error: std::io::Error| Failure::new(format!("write {}: {error}", path.display()));
    let file = tokio::fs::File::create(&part).await.map_err(failed)?;
    match copy(chunks, file).await {
        Ok(()) => tokio::fs::rename(&part, path).await.map_err(failed),
        Err(failure) => {
            // An error here would hide the first failure, which is the one to report.
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
