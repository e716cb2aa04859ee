//! Disks that hang, are slow, full, read-only or forget writes, per role, next to pods that do not use them.
//!
//! A disk is ext4 on a loop device, mounted inside the node; the state directory is a small tmpfs. *Frozen* is
//! fsfreeze(8),
//! *stalled* freezes the file system below the loop device, *slow* freezes and thaws ten times a second, *read-only* is
//! ext4's answer to an I/O error.
//!
//! Each case has pods that use the disk (they log to it, or write and sync files on it), bystanders that do not, and,
//! while the fault lasts, newcomers that want to use it. A fault of the engine is: a bystander's probe that fails or is
//! late; `Status` or a list without an answer within a second; a daemon or a monitor that died; a request about the
//! disk that is not answered after the fault's end; a line that is lost without a notice; anything that cannot be
//! removed or unmounted.

mod case;
mod disk;
mod run;

use case::CASES;

/// How to run the campaign.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Only these cases (`log-frozen`, `data-full`, …)
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// All but these cases
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Pods that do not use the disk
    #[arg(long, default_value_t = 50)]
    pub victims: usize,
    /// Pods that use the disk
    #[arg(long, default_value_t = 10)]
    pub loaded: usize,
    /// Pods that want to use the disk while it is faulty
    #[arg(long, default_value_t = 8)]
    pub newcomers: usize,
    /// Seconds that the fault lasts
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// Seconds of the undisturbed measurement
    #[arg(long, default_value_t = 10.0)]
    pub quiet: f64,
    /// Milliseconds between two probes of a bystander
    #[arg(long, default_value_t = 1000)]
    pub period: u64,
    /// Kills daemon and monitor while the fault lasts
    #[arg(long)]
    pub kill: bool,
    /// Bound for the 99th percentile of a bystander's exec, as a multiple of the undisturbed one
    #[arg(long, default_value_t = 3.0)]
    pub factor: f64,
    /// Bound in seconds for a bystander's slowest exec
    #[arg(long, default_value_t = 1.0)]
    pub slowest: f64,
    /// Seed of random choices
    #[arg(long, env = "CAMPAIGN_SEED", default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// What `make test` runs of one case: a moment, without bounds that a busy machine would break.
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

/// Runs the campaign and prints what it saw; returns the faults.
///
/// # Errors
/// If a case is unknown.
///
/// # Panics
/// If there is no node, or no disk on it.
pub async fn run(plan: &Plan) -> Result<Vec<String>, String> {
    let known = |name: &&String| !CASES.iter().any(|case| case.to_string() == **name);
    if let Some(name) = plan.only.iter().chain(&plan.skip).find(known) {
        let names: Vec<_> = CASES.iter().map(ToString::to_string).collect();
        return Err(format!("there is no case {name}: {}", names.join(", ")));
    }
    let named = |list: &[String], name: &String| list.contains(name);
    let mut faults = Vec::new();
    for case in CASES {
        let name = case.to_string();
        if (plan.only.is_empty() || named(&plan.only, &name)) && !named(&plan.skip, &name) {
            faults.extend(run::run(plan, case).await.into_iter().map(|fault| format!("{case}: {fault}")));
        }
    }
    println!("disks: seed {}, {} faults", plan.seed, faults.len());
    Ok(faults)
}
