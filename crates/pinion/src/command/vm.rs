//! `pinion vm`: what virtual machines of pods need. Needs no daemon.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde_json::json;
use vm::guest_image::{Sources, build};

use crate::{Failure, output};

/// Name of the program that becomes the first process of a guest.
const AGENT: &str = "pinion-agent";

/// Arguments of `pinion vm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make the kernel and the initramfs that guests boot, from a kernel of the distribution
    Image {
        /// Directory that contains boot/vmlinuz-RELEASE and lib/modules/RELEASE: this node, or an unpacked package
        #[arg(long, value_name = "DIRECTORY", default_value = "/")]
        root: PathBuf,
        /// Release of the kernel; the newest one if it is not given
        #[arg(long)]
        release: Option<String>,
        /// Directory of the image, which is replaced as a whole
        #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/pinion/vm")]
        output: PathBuf,
        /// The agent; found like the monitor if it is not given
        #[arg(long, value_name = "FILE")]
        agent: Option<PathBuf>,
    },
}

pub(crate) fn run(args: Args, as_json: bool) -> Result<u8, Failure> {
    let Verb::Image { root, release, output, agent } = args.verb;
    let agent = match agent {
        Some(agent) => agent,
        None => find_agent()?,
    };
    let failed = |error: vm::guest_image::Error| Failure::new(error.to_string());
    let sources = Sources::find(&root, release.as_deref(), agent).map_err(failed)?;
    let image = build(&sources, &output).map_err(failed)?;
    if as_json {
        output::json(&json!({"directory": output, "image": image}))?;
        return Ok(0);
    }
    let sizes = (image.kernel_size + image.initramfs_size) >> 20;
    output::line(&format!(
        "{}: Linux {}, {} modules, {sizes} MiB; pods that are created from now on boot it",
        output.display(),
        image.release,
        image.modules.len()
    ))?;
    Ok(0)
}

/// Finds the agent in the directory of this program, or in `../libexec/pinion`.
fn find_agent() -> Result<PathBuf, Failure> {
    let program = env::current_exe().ok();
    let directory = program.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
    let candidates = [directory.join(AGENT), directory.join("../libexec/pinion").join(AGENT)];
    let found = candidates.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| {
        let places: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        Failure::new(format!(
            "find the agent: no program at {}; install {AGENT}, or name it with --agent",
            places.join(", ")
        ))
    })
}
