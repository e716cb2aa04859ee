use std::{fs, path::PathBuf};

use crate::Failure;

/// Arguments of `pinion man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory; it is created if it does not exist
    directory: PathBuf,
}

/// Writes one page for `pinion` and one for each command that is not hidden. The pages carry no date, so that the same
/// program always writes the same bytes.
pub(crate) fn run(args: &Args, pinion: clap::Command) -> Result<u8, Failure> {
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(pinion, directory))
        .map_err(|error| Failure::new(format!("write manual pages to {}: {error}", directory.display())))?;
    Ok(0)
}
