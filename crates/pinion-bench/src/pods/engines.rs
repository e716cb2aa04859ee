//! The arguments and the end of scenarios whose contestants are engines.

use super::Shape;
use crate::{
    engine::{Endpoint, Engine, Failure},
    report,
    run::{self, Options, Scenario},
};

/// Engines to measure, and properties of their pods.
#[derive(clap::Args)]
pub(crate) struct Engines {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Ratios are those of the first to each other one.
    #[arg(long = "engine", required = true)]
    pub(crate) engines: Vec<Endpoint>,
    /// Image with `true` and `sleep`; pulled if it is missing.
    #[arg(long)]
    pub(crate) image: String,
    /// Run the pods in the host network.
    #[arg(long)]
    pub(crate) host_network: bool,
}

impl Engines {
    /// Connects to the engines, and has them pull the image. Engines that fail are left out, except for the first one.
    pub(crate) async fn connect(&self) -> Result<(Vec<Engine>, Shape), Failure> {
        let engines = Engine::connect_all(&self.engines, &self.image).await?;
        Ok((engines, Shape::new(&self.image, self.host_network)))
    }
}

/// Runs all rounds of a scenario with pods, removes their logs, and reports.
pub(crate) async fn drive(scenario: &mut impl Scenario, shape: &Shape, options: &Options) -> Result<(), Failure> {
    let results = run::drive(scenario, options).await;
    // The directory may not exist.
    let _ = std::fs::remove_dir_all(shape.logs());
    report::finish(results?, options)
}
