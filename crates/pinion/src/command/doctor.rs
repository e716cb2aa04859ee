mod settings;

use std::{path::PathBuf, time::Duration};

use cri_proto::{
    REPORT_FORMAT,
    pinion::{Condition, InfoRequest},
    v1,
};
use doctor::{CgroupDriver, DaemonState, Finding, Host, Node, Options, Probes, Report, Settings, Severity};

use crate::{Client, Failure, output, table::printable};

/// How long the daemon may take to respond.
const DAEMON_MAX: Duration = Duration::from_secs(5);

/// Arguments of `pinion doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file of the kubelet [default: the one that its flags name, else /var/lib/kubelet/config.yaml]
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
    /// Configuration file of the daemon [default: /etc/pinion/config.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also print what is as it should be, and why each check matters
    #[arg(short, long)]
    verbose: bool,
}

/// What can be found out without the daemon.
pub(crate) struct Examination {
    settings: Settings,
    probes: Probes,
    kubelet_config: Option<PathBuf>,
}

impl Examination {
    /// Reads the configuration, and tries nothing.
    pub(crate) fn without_probes(
        config: Option<PathBuf>,
        kubelet: Option<PathBuf>,
        socket: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| Failure::usage(format!("resolve path {}: {error}", path.display())))
        };
        let settings = settings::load(config.map(absolute).transpose()?, socket.map(absolute).transpose()?)?;
        let probes = Probes::not_tried("nothing depends on it");
        Ok(Self { settings, probes, kubelet_config: kubelet.map(absolute).transpose()? })
    }

    /// Adds the state of the daemon, and collects everything else.
    pub(crate) async fn node(mut self) -> Node {
        let state = tokio::time::timeout(DAEMON_MAX, daemon(&mut self.settings)).await;
        let daemon = match state {
            Ok(Ok(state)) => state,
            Ok(Err(failure)) => DaemonState::Unreachable(failure.to_string()),
            Err(_) => DaemonState::Unreachable(format!("no response within {} s", DAEMON_MAX.as_secs())),
        };
        let Self { settings, probes, kubelet_config } = self;
        Node::collect(Options { host: Host::real(), settings, daemon, probes, kubelet_config })
    }
}

/// Reads the configuration and tries what the kernel can do. The process must have a single thread.
pub(crate) fn start(args: &Args, socket: Option<PathBuf>) -> Result<Examination, Failure> {
    let examination = Examination::without_probes(args.config.clone(), args.kubelet_config.clone(), socket)?;
    Ok(Examination { probes: Probes::run(&examination.settings.data_dir), ..examination })
}

pub(crate) async fn run(examination: Examination, args: Args, json: bool) -> Result<u8, Failure> {
    let report = doctor::examine(&examination.node().await);
    match json {
        true => output::json(&report)?,
        false => print(&report, args.verbose)?,
    }
    Ok(report.exit_code())
}

async fn daemon(settings: &mut Settings) -> Result<DaemonState, Failure> {
    let mut client = Client::connect(Some(settings.socket.clone()), false).await?;
    let info = client.native.info(InfoRequest { format: REPORT_FORMAT }).await?.into_inner();
    let runtime = client.runtime.runtime_config(v1::RuntimeConfigRequest {}).await?.into_inner();
    if let Some(linux) = runtime.linux {
        settings.cgroup_driver = match linux.cgroup_driver() {
            v1::CgroupDriver::Systemd => CgroupDriver::Systemd,
            v1::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        };
    }
    let conditions = [info.runtime.as_ref(), info.network_ready.as_ref()].into_iter().flatten();
    let text = |condition: &Condition| format!("{}: {}", condition.reason, condition.message);
    Ok(DaemonState::Running {
        version: info.version,
        expected: env!("CARGO_PKG_VERSION").to_owned(),
        not_ready: conditions.filter(|condition| !condition.ready).map(text).collect(),
    })
}

fn print(report: &Report, verbose: bool) -> Result<(), Failure> {
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    // The worst first; otherwise in the order of the checks.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let shown = findings.into_iter().filter(|finding| verbose || finding.severity != Severity::Ok);
    output::lines(shown.flat_map(|finding| text(finding, verbose)))?;
    let summary = report.summary;
    let count = |number: usize, name: &str| format!("{number} {name}{}", if number == 1 { "" } else { "s" });
    output::line(&format!(
        "{}, {}, {}, {} ok",
        count(summary.problem, "problem"),
        count(summary.warning, "warning"),
        count(summary.notice, "notice"),
        summary.ok
    ))
}

fn text(finding: &Finding, verbose: bool) -> Vec<String> {
    let severity = match finding.severity {
        Severity::Ok => "ok",
        Severity::Notice => "notice",
        Severity::Warning => "WARNING",
        Severity::Problem => "PROBLEM",
    };
    let mut lines = vec![format!("{severity:8} {}: {}", finding.id, printable(&finding.message))];
    if finding.severity > Severity::Notice || (verbose && finding.severity != Severity::Ok) {
        lines.push(format!("         why: {}", finding.reason));
    }
    lines.extend(finding.fix.as_ref().map(|fix| format!("         fix: {}", printable(fix))));
    lines
}
