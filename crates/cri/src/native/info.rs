use std::path::Path;

use cri_proto::{REPORT_FORMAT, pinion as proto};

use crate::{
    DaemonFacts, Failure, RUNTIME_VERSION,
    handler::{Outcome, Shared},
};

/// Returns versions, conditions, paths and counts of the daemon and the engine.
pub(super) async fn handle(state: Shared, request: proto::InfoRequest) -> Outcome<proto::InfoResponse> {
    check_format("info", request.format)?;
    let status = state.engine.status().await;
    let handler_details = status.handlers.iter().map(handler).collect();
    let info = status.info;
    Ok(proto::InfoResponse {
        format: REPORT_FORMAT,
        version: RUNTIME_VERSION.to_owned(),
        pid: std::process::id(),
        pods: count(state.engine.sandboxes().len()),
        containers: count(state.engine.containers().len()),
        handlers: status.handlers.into_iter().map(|handler| handler.name).collect(),
        state_dir: text(&info.state_dir),
        data_dir: text(&info.data_dir),
        image_root: text(state.engine.images().root()),
        runtime: Some(condition(status.runtime)),
        network_ready: Some(condition(status.network)),
        network: info.network,
        monitor: info.monitor.map(monitor),
        health: Some(health(info.health)),
        user_namespaces: Some(feature(info.user_namespaces)),
        apparmor: Some(feature(info.apparmor)),
        daemon: Some(daemon(state.daemon.facts())),
        plugins: state.engine.plugins().into_iter().map(plugin).collect(),
        handler_details,
    })
}

/// Checks that the client can read the response. One that is older than the messages requests no format.
pub(super) fn check_format(rpc: &str, format: u32) -> Outcome<()> {
    match format {
        0 => Err(Failure::precondition(format!(
            "{rpc}: this command line is older than the daemon ({RUNTIME_VERSION}) and cannot read its response; use \
             the pinion of the daemon's version"
        ))),
        _ => Ok(()),
    }
}

fn plugin(plugin: pod::PluginInfo) -> proto::PluginInfo {
    let pod::PluginInfo { name, pid, launched, synchronized } = plugin;
    proto::PluginInfo { name, pid: pid.unwrap_or_default(), launched, synchronized }
}

fn handler(handler: &pod::HandlerInfo) -> proto::HandlerInfo {
    let feature = |name| proto::HandlerFeature { name, supported: Some(true) };
    let info = proto::HandlerInfo { name: handler.name.clone(), ..proto::HandlerInfo::default() };
    match &handler.kind {
        pod::HandlerKind::Native => {
            proto::HandlerInfo { kind: "native".to_owned(), version: format!("pinion {RUNTIME_VERSION}"), ..info }
        }
        pod::HandlerKind::Wasm { binary, version } => proto::HandlerInfo {
            kind: "wasm".to_owned(),
            binary: text(binary),
            version: version.clone().unwrap_or_default(),
            problem: version.as_ref().err().cloned().unwrap_or_default(),
            ..info
        },
        pod::HandlerKind::Vm { hypervisor, accelerator, overhead } => proto::HandlerInfo {
            kind: "vm".to_owned(),
            overhead: Some(proto::PodOverhead { memory: overhead.memory, cpu_millis: overhead.cpu_millis }),
            binary: text(hypervisor),
            features: accelerator.iter().map(|name| feature((*name).to_owned())).collect(),
            problem: accelerator.as_ref().err().cloned().unwrap_or_default(),
            ..info
        },
        pod::HandlerKind::Shim { binary, facts } => program("shim", binary, facts, info),
        pod::HandlerKind::Oci { binary, facts } => program("oci", binary, facts, info),
    }
}

/// Adds what the program of a handler reports about itself.
fn program(
    kind: &str,
    binary: &Path,
    facts: &Result<pod::RuntimeFacts, String>,
    info: proto::HandlerInfo,
) -> proto::HandlerInfo {
    let feature = |(name, supported): (&str, Option<bool>)| proto::HandlerFeature { name: name.to_owned(), supported };
    let features = facts.as_ref().ok().and_then(|facts| facts.features.as_ref());
    proto::HandlerInfo {
        kind: kind.to_owned(),
        binary: text(binary),
        version: facts.as_ref().map(|facts| facts.version.clone()).unwrap_or_default(),
        problem: facts.as_ref().err().cloned().unwrap_or_default(),
        features: features.map(|features| features.list().map(feature).into()).unwrap_or_default(),
        ..info
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn condition(condition: pod::Condition) -> proto::Condition {
    let pod::Condition { ready, reason, message } = condition;
    proto::Condition { ready, reason, message }
}

fn feature(feature: pod::Feature) -> proto::Feature {
    let pod::Feature { supported, reason } = feature;
    proto::Feature { supported, reason: reason.unwrap_or_default() }
}

fn monitor(monitor: pod::MonitorInfo) -> proto::MonitorInfo {
    let pod::MonitorInfo { pid, version, contract: (contract_major, contract_minor) } = monitor;
    proto::MonitorInfo { pid, version, contract_major, contract_minor }
}

fn health(health: pod::HealthInfo) -> proto::HealthInfo {
    let stuck = |log: pod::StuckLog| proto::health_info::StuckLog {
        device: log.device,
        silent_ms: log.silent_ms,
        containers: log.containers,
    };
    proto::HealthInfo {
        stuck_logs: health.stuck_logs.into_iter().map(stuck).collect(),
        data_disk: Some(condition(health.data_disk)),
        monitor_silent_seconds: health.monitor_silence.as_secs(),
        data_disk_silent_seconds: health.data_disk_silence.as_secs(),
    }
}

fn daemon(facts: DaemonFacts) -> proto::DaemonInfo {
    proto::DaemonInfo {
        socket: text(&facts.socket),
        state_dir: text(&facts.state_dir),
        data_dir: text(&facts.data_dir),
        cgroup_parent: facts.cgroup_parent,
        configuration_files: facts.configuration_files.iter().map(|file| text(file)).collect(),
        configuration_since: facts.configuration_since,
        reloads: facts.reloads,
        refused: facts.refused.map(|(error, at)| proto::RefusedConfiguration { error, at }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_without_a_format_is_refused_with_a_remedy() {
        let refused = check_format("why", 0).expect_err("it expects JSON").to_string();
        assert!(refused.contains("older than the daemon") && refused.contains("use the pinion of"), "{refused}");
        assert!(check_format("why", REPORT_FORMAT).is_ok());
    }
}
