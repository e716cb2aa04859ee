use std::{net::IpAddr, path::PathBuf};

use clap::ValueEnum;

use super::networks::{self, Network};
use crate::{ports::Publish, quantity, signal_name, volume::Bind};

/// When to pull the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pull {
    Always,
    Missing,
    Never,
}

/// Arguments of `pinion run`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pinion run [OPTIONS] <IMAGE> [COMMAND]...")]
pub(crate) struct Args {
    /// Send standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Allocate a terminal; ctrl-p ctrl-q detaches from it
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Print the container's id and leave it running
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Remove the container and its pod when the container exits
    #[arg(long)]
    pub(crate) rm: bool,
    /// Name of the container [default: generated from the image name]
    #[arg(long, value_parser = name)]
    pub(crate) name: Option<String>,
    /// Pod of the container; it is created if it does not exist
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) pod: Option<String>,
    /// Publish a port: [ADDRESS:]HOSTPORT:PORT[/udp]
    #[arg(short, long, value_name = "PORTS")]
    pub(crate) publish: Vec<Publish>,
    /// Mount a directory or file of the host: HOST:CONTAINER[:ro]
    #[arg(short, long, value_name = "MOUNT")]
    pub(crate) volume: Vec<Bind>,
    /// Set an environment variable; NAME without a value takes it from the local environment
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Read environment variables from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Add a label to the container
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) label: Vec<String>,
    /// Memory limit: 512m, 1.5g
    #[arg(short, long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub(crate) memory: Option<i64>,
    /// CPU limit in cores: 0.5, 2
    #[arg(long, value_name = "CORES", value_parser = quantity::cores)]
    pub(crate) cpus: Option<i64>,
    /// Working directory in the container
    #[arg(short, long, value_name = "DIRECTORY")]
    pub(crate) workdir: Option<String>,
    /// User name or id, optionally with :GROUP
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Host name [default: the name of the container or pod]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname: Option<String>,
    /// Program to run instead of the entrypoint of the image; "" runs the command without an entrypoint
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) entrypoint: Option<String>,
    /// Network: default, host, none, or NAME[:ip=ADDRESS,mac=MAC,alias=NAME] of `pinion network create`; several times:
    /// several networks, the first one with the default route
    #[arg(long, visible_alias = "net", value_name = "NETWORK")]
    pub(crate) network: Vec<Network>,
    /// Address in the first network of --network
    #[arg(long, visible_alias = "ip6", value_name = "ADDRESS")]
    pub(crate) ip: Vec<IpAddr>,
    /// MAC address in the first network of --network
    #[arg(long, value_name = "MAC")]
    pub(crate) mac_address: Option<String>,
    /// Further name in the first network of --network
    #[arg(long, value_name = "NAME")]
    pub(crate) network_alias: Vec<String>,
    /// DNS server [default: those of the host]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dns: Vec<IpAddr>,
    /// DNS search domain [default: those of the host]
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) dns_search: Vec<String>,
    /// DNS option, such as ndots:2
    #[arg(long, visible_alias = "dns-opt", value_name = "OPTION")]
    pub(crate) dns_option: Vec<String>,
    /// Line of /etc/hosts: NAME:ADDRESS; host-gateway is the address of the host in the first network
    #[arg(long, value_name = "NAME:ADDRESS", value_parser = networks::host)]
    pub(crate) add_host: Vec<(String, String)>,
    /// Grant all capabilities and devices, without filters, as for a process of the host
    #[arg(long)]
    pub(crate) privileged: bool,
    /// Make everything but volumes read-only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Add a capability: NET_ADMIN, ALL
    #[arg(long, value_name = "CAPABILITY")]
    pub(crate) cap_add: Vec<String>,
    /// Drop a capability
    #[arg(long, value_name = "CAPABILITY")]
    pub(crate) cap_drop: Vec<String>,
    /// Signal that `stop` sends [default: from the image, else TERM]
    #[arg(long, value_name = "SIGNAL", value_parser = signal_name::parse)]
    pub(crate) stop_signal: Option<i32>,
    /// When to pull the image
    #[arg(long, value_enum, default_value_t = Pull::Missing)]
    pub(crate) pull: Pull,
    /// Runtime handler of the pod
    #[arg(long, value_name = "HANDLER", default_value = "", hide_default_value = true)]
    pub(crate) runtime: String,
    /// Image, and the command with its arguments instead of that of the image; options after the image belong to the
    /// command
    // A single argument, because clap stops parsing options only at the last positional argument.
    #[arg(required = true, trailing_var_arg = true, value_names = ["IMAGE", "COMMAND"])]
    program: Vec<String>,
}

impl Args {
    /// Returns the image reference as the user specified it.
    pub(crate) fn image(&self) -> &str {
        self.program.first().map_or("", String::as_str)
    }

    /// Returns the command and its arguments; empty if the command of the image is to be used.
    pub(crate) fn command(&self) -> &[String] {
        self.program.get(1..).unwrap_or_default()
    }
}

/// Checks a name: it must not need quotes in a shell, and must not be a path.
fn name(text: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_valid) && text.len() <= 253 {
        true => Ok(text.to_owned()),
        false => Err("use letters, digits, '-', '_' and '.', and start with a letter or digit".to_owned()),
    }
}
