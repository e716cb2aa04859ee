mod import;

use std::path::PathBuf;

use migrate::{Inventory, Plan, Source, Step};
use serde_json::json;

use super::doctor::Examination;
use crate::{Client, Failure, output, table::printable};
use import::{Action, ImageOutcome};

/// Arguments of `pinion migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Engine that the node is taken over from; it may be running or stopped
    #[arg(value_enum)]
    engine: EngineName,
    /// Import its images into the running daemon; without this option nothing is changed
    #[arg(long)]
    images: bool,
    /// With --images: only print what would be imported
    #[arg(long)]
    dry_run: bool,
    /// Directory of its images [default: /var/lib/containerd, /var/lib/containers/storage or /var/lib/docker]
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Namespace in containerd [default: k8s.io]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    /// containerd
    Containerd,
    /// CRI-O
    Crio,
    /// Docker with cri-dockerd
    Docker,
}

impl EngineName {
    fn source(self) -> Source {
        match self {
            Self::Containerd => Source::Containerd,
            Self::Crio => Source::Crio,
            Self::Docker => Source::Docker,
        }
    }
}

pub(crate) async fn run(examination: Examination, args: Args, json: bool) -> Result<u8, Failure> {
    if args.dry_run && !args.images {
        return Err(Failure::usage("--dry-run: only with --images; without --images nothing is changed anyway"));
    }
    let node = examination.node().await;
    let (source, root, namespace) = (args.engine.source(), args.root.clone(), args.namespace.clone());
    let inventory = offload::blocking(move || migrate::take_inventory(source, root, namespace.as_deref())).await;
    let inventory = inventory
        .map_err(|error| Failure::new(format!("read the store of {}: {error}", source.engine().name())))?
        .map_err(|error| Failure::new(format!("read the store of {}: {error}", source.engine().name())))?;
    let plan = migrate::plan(&node, &inventory);
    if !json {
        print_plan(&inventory, &plan)?;
    }
    let Inventory { images, root, .. } = inventory;
    let outcomes = match args.images && !args.dry_run {
        true => {
            let client = Client::connect(Some(node.settings.socket.clone()), json).await?;
            import::run(client, images).await?
        }
        false => images.into_iter().map(import::planned).collect(),
    };
    match json {
        true => output::json(&json!({
            "engine": source, "root": root, "images": outcomes, "plan": plan,
        }))?,
        false => print_outcomes(&outcomes, args.images && !args.dry_run)?,
    }
    Ok(u8::from(outcomes.iter().any(|outcome| outcome.action == Action::Failed)))
}

fn print_plan(inventory: &Inventory, plan: &Plan) -> Result<(), Failure> {
    let name = inventory.source.engine().name();
    let heading =
        format!("{name}: {} images, {} pods in {}", inventory.images.len(), plan.pods.len(), inventory.root.display());
    let mut lines = vec![heading, String::new(), "What stops or changes:".to_owned()];
    lines.extend(plan.consequences.iter().map(|text| format!("  - {text}")));
    for pod in &plan.pods {
        lines.push(format!(
            "      {}/{} ({} containers)",
            printable(&pod.namespace),
            printable(&pod.name),
            pod.containers
        ));
    }
    lines.extend(plan.static_pods.iter().map(|file| format!("      static pod {}", printable(file))));
    for (heading, steps) in [("The switch, in this order:", &plan.steps), ("To go back:", &plan.back)] {
        lines.extend([String::new(), heading.to_owned()]);
        lines.extend(steps.iter().enumerate().map(|(number, step)| text(number + 1, step)));
    }
    lines.extend([String::new(), "Images:".to_owned()]);
    output::lines(lines)
}

fn text(number: usize, step: &Step) -> String {
    format!("  {number:2}. {}\n      {}", step.purpose, printable(&step.command))
}

fn print_outcomes(outcomes: &[ImageOutcome], is_imported: bool) -> Result<(), Failure> {
    // Imported images were printed one by one.
    if !is_imported {
        output::lines(outcomes.iter().map(ImageOutcome::line))?;
    }
    let count = |action| outcomes.iter().filter(|outcome| outcome.action == action).count();
    output::line(&format!(
        "{} imported, {} to import, {} already present, {} to pull, {} failed",
        count(Action::Imported),
        count(Action::Import),
        count(Action::Present),
        count(Action::Pull),
        count(Action::Failed)
    ))
}
