use std::path::PathBuf;

use clap::ValueEnum;

use crate::{ports::Publish, quantity, signal_name, volume::Bind};

/// When to ask the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pull {
    Always,
    Missing,
    Never,
}

/// Where the container's interfaces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    // An address of its own in the pods' network.
    Default,
    // The machine's own interfaces.
    Host,
}

/// Arguments of `pinion run`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pinion run [OPTIONS] <IMAGE> [COMMAND]...")]
pub(crate) struct Args {
    /// Send standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give it a terminal; ctrl-p ctrl-q leaves it
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Print the container's id and leave it running
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Remove the container and its pod when it ended
    #[arg(long)]
    pub(crate) rm: bool,
    /// Name [default: made of the image's]
    #[arg(long, value_parser = name)]
    pub(crate) name: Option<String>,
    /// Put it into this pod; the pod is made if there is none
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) pod: Option<String>,
    /// Publish a port: [ADDRESS:]HOSTPORT:PORT[/udp]
    #[arg(short, long, value_name = "PORTS")]
    pub(crate) publish: Vec<Publish>,
    /// Mount a directory or file of the machine: HOST:CONTAINER[:ro]
    #[arg(short, long, value_name = "MOUNT")]
    pub(crate) volume: Vec<Bind>,
    /// Set a variable; NAME alone takes the value from here
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Read variables from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Label of the container
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) label: Vec<String>,
    /// Most memory: 512m, 1.5g
    #[arg(short, long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub(crate) memory: Option<i64>,
    /// Most CPU time, in cores: 0.5, 2
    #[arg(long, value_name = "CORES", value_parser = quantity::cores)]
    pub(crate) cpus: Option<i64>,
    /// Working directory
    #[arg(short, long, value_name = "DIRECTORY")]
    pub(crate) workdir: Option<String>,
    /// User: a name or an id, with :GROUP or not
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Host name [default: the name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname: Option<String>,
    /// Program to run in place of the image's entrypoint; "" runs the command without one
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) entrypoint: Option<String>,
    /// An address of its own, or the machine's interfaces
    #[arg(long, value_enum, default_value_t = Network::Default)]
    pub(crate) network: Network,
    /// All capabilities and devices, no filters: like a process of the machine
    #[arg(long)]
    pub(crate) privileged: bool,
    /// Nothing can be written but volumes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Add a capability: NET_ADMIN, ALL
    #[arg(long, value_name = "CAPABILITY")]
    pub(crate) cap_add: Vec<String>,
    /// Take a capability away
    #[arg(long, value_name = "CAPABILITY")]
    pub(crate) cap_drop: Vec<String>,
    /// Signal that `stop` sends [default: the image's, else TERM]
    #[arg(long, value_name = "SIGNAL", value_parser = signal_name::parse)]
    pub(crate) stop_signal: Option<i32>,
    /// When to pull the image
    #[arg(long, value_enum, default_value_t = Pull::Missing)]
    pub(crate) pull: Pull,
    /// Runtime handler of the pod
    #[arg(long, value_name = "HANDLER", default_value = "", hide_default_value = true)]
    pub(crate) runtime: String,
    /// Image, and the command with its arguments in place of the image's; options after the image are the command's
    // One argument, because clap ends its options at the last positional argument only.
    #[arg(required = true, trailing_var_arg = true, value_names = ["IMAGE", "COMMAND"])]
    program: Vec<String>,
}

impl Args {
    /// The image as the user wrote it.
    pub(crate) fn image(&self) -> &str {
        self.program.first().map_or("", String::as_str)
    }

    /// Command and arguments in place of the image's; empty: the image's.
    pub(crate) fn command(&self) -> &[String] {
        self.program.get(1..).unwrap_or_default()
    }
}

/// What can be typed without quotes, and is no path.
fn name(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good) && text.len() <= 253 {
        true => Ok(text.to_owned()),
        false => Err("letters, digits, '-', '_' and '.', the first a letter or digit".to_owned()),
    }
}
