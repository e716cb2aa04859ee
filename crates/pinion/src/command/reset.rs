use std::path::PathBuf;

use super::serve;
use crate::{Failure, daemon};

/// Arguments of `pinion reset`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Confirm: this cannot be undone
    #[arg(long, required = true)]
    yes: bool,
    /// Keep the images and the data directory
    #[arg(long)]
    keep_data: bool,
    #[command(flatten)]
    serve: serve::Args,
}

pub(crate) fn run(args: Args, socket: Option<PathBuf>) -> Result<u8, Failure> {
    debug_assert!(args.yes, "clap requires it");
    daemon::reset(&args.serve.source(socket)?, args.keep_data)?;
    Ok(0)
}
