//! The program of the disk fault campaign: `tests/campaign/disks`.

use std::process::ExitCode;

use campaign_tests::{
    disks::{self, Plan},
    program,
};
use clap::Parser;

/// Disks that hang, are slow, full, read-only or forget writes, next to pods that do not use them
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
}

#[tokio::main]
async fn main() -> ExitCode {
    let plan = Arguments::parse().plan;
    program::run("disks", disks::run(&plan)).await
}
