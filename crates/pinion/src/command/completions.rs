use clap_complete::Shell;

use crate::{Failure, output};

/// Arguments of `pinion completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut pinion: clap::Command) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut pinion, "pinion", &mut text);
    output::line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(0)
}
