use std::path::PathBuf;

use cri_proto::pinion::Chunk;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::{Client, Failure, output, terminal};

/// Size of the data in one message, in bytes.
const CHUNK: usize = 256 * 1024;

/// Arguments of `pinion load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Archive file, a tar that may be compressed [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Print only image names
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let (sender, receiver) = mpsc::channel(8);
    let reading = match args.input {
        Some(path) => {
            let failed = |error| Failure::new(format!("open archive {}: {error}", path.display()));
            let file = tokio::fs::File::open(&path).await.map_err(failed)?;
            tokio::spawn(read(file, sender))
        }
        None if terminal::is_input() => {
            return Err(Failure::usage("load: give an archive with -i FILE or on standard input"));
        }
        None => tokio::spawn(read(tokio::io::stdin(), sender)),
    };
    let images = client.native.load(ReceiverStream::new(receiver)).await?.into_inner().images;
    reading.await.map_err(|error| Failure::new(format!("read the archive: {error}")))??;
    match (client.json, args.quiet) {
        (true, _) => output::json(&images)?,
        (false, true) => output::lines(&images)?,
        (false, false) => output::lines(images.iter().map(|name| format!("loaded {name}")))?,
    }
    Ok(0)
}

async fn read(mut archive: impl AsyncRead + Unpin, sender: mpsc::Sender<Chunk>) -> Result<(), Failure> {
    loop {
        let mut data = Vec::with_capacity(CHUNK);
        let read =
            archive.read_buf(&mut data).await.map_err(|error| Failure::new(format!("read the archive: {error}")))?;
        // An error of `send` means that the daemon stopped reading; its response contains the reason.
        if read == 0 || sender.send(Chunk { data }).await.is_err() {
            return Ok(());
        }
    }
}
