//! The program of the attack campaign: `tests/campaign/hostile`.

use std::process::ExitCode;

use campaign_tests::{
    hostile::{self, Plan},
    program,
};
use clap::Parser;

/// Containers that attack the engine, next to pods that must not be affected
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
}

#[tokio::main]
async fn main() -> ExitCode {
    let plan = Arguments::parse().plan;
    program::run("hostile", hostile::run(&plan)).await
}
