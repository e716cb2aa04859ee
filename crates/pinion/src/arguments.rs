use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::command;

/// Runs containers: a container engine for Kubernetes nodes and for people.
#[derive(Debug, Parser)]
#[command(name = "pinion", version, propagate_version = false, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Socket of the daemon [default: the configuration's, /run/pinion/pinion.sock]
    #[arg(long, global = true, env = "PINION_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a new container
    Run(Box<command::run::Args>),
    /// List containers
    #[command(visible_alias = "list")]
    Ps(command::ps::Args),
    /// List pods; stop or remove them
    Pods(command::pods::Args),
    /// Show what a container wrote
    Logs(command::logs::Args),
    /// Run a command in a container
    Exec(command::exec::Args),
    /// Connect to a container's streams
    Attach(command::attach::Args),
    /// Start created containers
    Start(command::start::Args),
    /// Stop containers
    Stop(command::stop::Args),
    /// Send a signal to containers
    Kill(command::kill::Args),
    /// Wait until containers ended and print their exit codes
    Wait(command::wait::Args),
    /// Remove containers
    Rm(command::rm::Args),
    /// Show what containers use
    Stats(command::stats::Args),
    /// Show what became of a pod or container, step by step, and what it waits for
    Why(command::why::Args),
    /// Show all that is known of a container, pod or image
    Inspect(command::inspect::Args),
    /// List images
    Images(command::images::Args),
    /// Pull an image from its registry
    Pull(command::pull::Args),
    /// Remove images
    Rmi(command::rmi::Args),
    /// Import images from an archive (Docker's or OCI's)
    Load(command::load::Args),
    /// Export images into an archive
    Save(command::save::Args),
    /// Show the daemon's state
    Info(command::info::Args),
    /// Show versions of this program and of the daemon
    Version(command::version::Args),
    /// Run the daemon
    Serve(command::serve::Args),
    /// Remove every pod, image, network and directory, with the daemon ended before
    Reset(command::reset::Args),
    /// Put the installed programs in the place of those that run; containers go on
    Upgrade(command::upgrade::Args),
    /// Show, check or reload the daemon's configuration
    Config(command::config::Args),
    /// Print a completion script for a shell
    Completions(command::completions::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_of_every_command_fit_together() {
        super::Arguments::command().debug_assert();
    }
}
