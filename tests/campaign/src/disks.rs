//! Disks in different roles that hang, are slow, full, read-only or lose writes, next to pods that do not use them.
//!
//! A disk is ext4 on a loop device, mounted inside the node; the state directory is a small tmpfs. *Frozen* is
//! fsfreeze(8), *stalled* freezes the file system below the loop device, *slow* freezes and thaws ten times a second,
//! *read-only* is the reaction of ext4 to an I/O error.
//!
//! Each case has pods that use the disk (they log to it, or write and sync files on it), bystanders that do not, and
//! newcomers that are started on the faulty disk. A fault of the engine is: a probe of a bystander that fails or is
//! late; `Status` or a list without a response within a second; a daemon or a monitor that exited; a request about the
//! disk without a response after the disk works again; a line that is lost without a notice; anything that cannot be
//! removed or unmounted.

mod case;
mod disk;
mod run;

use case::CASES;

/// Options of the campaign.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Run only these cases (`log-frozen`, `data-full`, …)
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Skip these cases
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Number of pods that do not use the disk
    #[arg(long, default_value_t = 50)]
    pub victims: usize,
    /// Number of pods that use the disk
    #[arg(long, default_value_t = 10)]
    pub loaded: usize,
    /// Number of pods that are started on the faulty disk
    #[arg(long, default_value_t = 8)]
    pub newcomers: usize,
    /// Duration of the disk fault in seconds
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// Duration of the undisturbed measurement in seconds
    #[arg(long, default_value_t = 10.0)]
    pub quiet: f64,
    /// Interval of the probes of a bystander in milliseconds
    #[arg(long, default_value_t = 1000)]
    pub period: u64,
    /// Kill daemon and monitor while the disk is faulty
    #[arg(long)]
    pub kill: bool,
    /// Bound for the 99th percentile of the execs of bystanders, as a multiple of the undisturbed one
    #[arg(long, default_value_t = 3.0)]
    pub factor: f64,
    /// Bound for the slowest exec of a bystander in seconds
    #[arg(long, default_value_t = 1.0)]
    pub slowest: f64,
    /// Seed of random choices
    #[arg(long, env = "CAMPAIGN_SEED", default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// The short form of one case, which `make test` runs: a few seconds, without bounds that a busy machine would
    /// exceed.
    pub fn short(case: &str, kill: bool) -> Self {
        Self {
            only: vec![case.to_owned()],
            skip: Vec::new(),
            victims: 3,
            loaded: 2,
            newcomers: 2,
            seconds: 2.0,
            quiet: 0.5,
            period: 100,
            kill,
            factor: f64::INFINITY,
            slowest: 5.0,
            seed: 1,
        }
    }
}

/// Runs the campaign, prints its results, and returns the faults.
///
/// # Errors
/// If a case is unknown.
///
/// # Panics
/// If the node or the disk cannot be set up.
pub async fn run(plan: &Plan) -> Result<Vec<String>, String> {
    let is_unknown = |name: &&String| !CASES.iter().any(|case| case.to_string() == **name);
    if let Some(name) = plan.only.iter().chain(&plan.skip).find(is_unknown) {
        let names: Vec<_> = CASES.iter().map(ToString::to_string).collect();
        return Err(format!("unknown case {name}; known: {}", names.join(", ")));
    }
    let mut faults = Vec::new();
    for case in CASES {
        let name = case.to_string();
        if (plan.only.is_empty() || plan.only.contains(&name)) && !plan.skip.contains(&name) {
            faults.extend(run::run(plan, case).await.into_iter().map(|fault| format!("{case}: {fault}")));
        }
    }
    println!("disks: seed {}, {} faults", plan.seed, faults.len());
    Ok(faults)
}
