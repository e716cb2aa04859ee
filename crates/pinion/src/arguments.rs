use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::command;

/// A container engine for Kubernetes nodes and interactive use.
#[derive(Debug, Parser)]
#[command(name = "pinion", version, propagate_version = false, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Socket of the daemon [default: from the configuration, else /run/pinion/pinion.sock]
    #[arg(long, global = true, env = "PINION_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The CLI commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a new container
    Run(Box<command::run::Args>),
    /// List containers
    #[command(visible_alias = "list")]
    Ps(command::ps::Args),
    /// List, stop or remove pods
    Pods(command::pods::Args),
    /// Show the log of a container
    Logs(command::logs::Args),
    /// Run a command in a container
    Exec(command::exec::Args),
    /// Attach to the stdio of a container
    Attach(command::attach::Args),
    /// Start created containers
    Start(command::start::Args),
    /// Stop containers
    Stop(command::stop::Args),
    /// Send a signal to containers
    Kill(command::kill::Args),
    /// Wait until containers exit and print their exit codes
    Wait(command::wait::Args),
    /// Remove containers
    Rm(command::rm::Args),
    /// Show the resource usage of containers
    Stats(command::stats::Args),
    /// Show the timeline of a pod or container, and what it is waiting for
    Why(command::why::Args),
    /// Show details of a container, pod or image
    Inspect(command::inspect::Args),
    /// List, inspect, pin and delete network namespaces, and execute programs in them
    Netns(command::netns::Args),
    /// Create, list, inspect and remove networks, and connect pods to them
    Network(command::network::Args),
    /// List images
    Images(command::images::Args),
    /// Pull an image from its registry
    Pull(command::pull::Args),
    /// Remove images
    Rmi(command::rmi::Args),
    /// Import images from a Docker or OCI archive
    Load(command::load::Args),
    /// Export images to an archive
    Save(command::save::Args),
    /// Show the daemon's state
    Info(command::info::Args),
    /// List runtime handlers, or check one with a container
    Handlers(command::handlers::Args),
    /// Make the image that virtual machines of pods boot
    Vm(command::vm::Args),
    /// Show versions of this program and of the daemon
    Version(command::version::Args),
    /// Run the daemon
    Serve(command::serve::Args),
    /// Remove every pod, image, network and directory; stop the daemon first
    Reset(command::reset::Args),
    /// Replace the running programs with the installed ones; containers keep running
    Upgrade(command::upgrade::Args),
    /// Show, check or reload the configuration of the daemon
    Config(command::config::Args),
    /// Check this node: kernel, kubelet, network, other engines; prints what is wrong and the command that fixes it
    Doctor(command::doctor::Args),
    /// Take this node over from another engine: import its images, and print what stops and the commands
    Migrate(command::migrate::Args),
    /// Print a completion script for a shell
    Completions(command::completions::Args),
    /// Write the manual pages of all commands into a directory; for packages
    #[command(hide = true)]
    Man(command::man::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_of_every_command_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}
