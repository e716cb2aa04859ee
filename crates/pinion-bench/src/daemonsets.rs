//! `pinion-bench daemonsets`: DaemonSets of a real cluster, created and deleted one after the other and at once; each has one pod, on the node whose
//! engine is measured.

mod event;
mod kubectl;
mod manifest;
mod turns;
mod watch;

use std::{path::PathBuf, str::FromStr};

use crate::{engine::Failure, report, run};
use turns::DaemonSets;

/// Arguments of `pinion-bench daemonsets`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Configuration of kubectl for the cluster. Its user creates and deletes a namespace, and DaemonSets in it.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// kubectl.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// Node whose engine is measured, NAME=NODE; may be repeated. Ratios are those of the first to each other one.
    #[arg(long = "node", required = true)]
    nodes: Vec<Node>,
    /// Image with `sh` and `sleep`. Nodes that do not have it pull it before the measurement.
    #[arg(long)]
    image: String,
    /// Number of DaemonSets of a turn, or that of --at-once if it is higher.
    #[arg(long, short = 'n', default_value_t = 100)]
    pods: usize,
    /// Numbers of DaemonSets that are created, and later deleted, at once; 1 is one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100])]
    at_once: Vec<usize>,
    /// Number of rounds. The nodes take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    #[command(flatten)]
    options: run::Options,
}

/// A node of the cluster, parsed from `NAME=NODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Name in the tables.
    name: String,
    /// Name in the cluster.
    node: String,
}

impl FromStr for Node {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, node)) if !name.is_empty() && !node.is_empty() => {
                Ok(Self { name: name.to_owned(), node: node.to_owned() })
            }
            _ => Err(format!("{text:?} is not NAME=NODE")),
        }
    }
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.at_once.contains(&0) || arguments.pods == 0 || arguments.rounds == 0 {
        return Err(Failure("--rounds, --pods and --at-once must be at least 1".to_owned()));
    }
    let mut sets = DaemonSets::new(&arguments)?;
    let results = run::drive(&mut sets, &arguments.options).await;
    drop(sets);
    report::finish(results?, &arguments.options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_name() {
        let node = Node { name: "pinion".to_owned(), node: "worker-1".to_owned() };
        assert_eq!("pinion=worker-1".parse(), Ok(node));
        assert!("worker-1".parse::<Node>().is_err() && "=x".parse::<Node>().is_err());
    }
}
