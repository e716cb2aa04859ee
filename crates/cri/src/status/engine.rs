//! The engine's and the daemon's part of the verbose `Status`, as JSON.

use std::collections::HashMap;

use pod::{Condition, EngineInfo, Feature, HealthInfo};
use serde_json::{Value, json};

use crate::DaemonFacts;

/// Returns the info of `crictl info`: one JSON text for each key.
pub(crate) fn engine_info(info: &EngineInfo, facts: &DaemonFacts) -> HashMap<String, String> {
    let mut values = vec![
        ("network", json!(info.network)),
        ("stateDir", json!(info.state_dir)),
        ("dataDir", json!(info.data_dir)),
        ("health", health(&info.health)),
        ("userNamespaces", feature(&info.user_namespaces)),
        ("apparmor", feature(&info.apparmor)),
        ("daemon", daemon(facts)),
    ];
    if let Some(monitor) = &info.monitor {
        let (major, minor) = monitor.contract;
        let contract = format!("{major}.{minor}");
        values.push(("monitor", json!({"pid": monitor.pid, "version": monitor.version, "contract": contract})));
    }
    values.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

/// Returns the reason why the feature is not supported, if it is known.
fn feature(feature: &Feature) -> Value {
    feature.reason.as_ref().map_or(json!(feature.supported), |reason| json!(reason))
}

fn health(health: &HealthInfo) -> Value {
    let Condition { ready, reason, message } = &health.data_disk;
    let stuck = health
        .stuck_logs
        .iter()
        .map(|log| json!({"device": log.device, "silentMs": log.silent_ms, "containers": log.containers}));
    json!({
        "stuckLogs": stuck.collect::<Vec<_>>(),
        "dataDisk": {"ready": ready, "reason": reason, "message": message},
        "silentSeconds": {
            "monitor": health.monitor_silence.as_secs(),
            "dataDisk": health.data_disk_silence.as_secs(),
        },
    })
}

fn daemon(facts: &DaemonFacts) -> Value {
    json!({
        "socket": facts.socket,
        "stateDir": facts.state_dir,
        "dataDir": facts.data_dir,
        "cgroupParent": facts.cgroup_parent,
        "configuration": {
            "files": facts.configuration_files,
            "since": facts.configuration_since,
            "reloads": facts.reloads,
            "refused": facts.refused.as_ref().map(|(error, _)| error),
            "refusedAt": facts.refused.as_ref().map(|(_, at)| at),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod::{MonitorInfo, StuckLog};

    use super::*;

    #[test]
    fn the_verbose_status_has_the_texts_that_scripts_read() {
        let data_disk = Condition { ready: false, reason: "DiskHung".into(), message: "no answer".into() };
        let info = EngineInfo {
            network: "bridge pinion0".into(),
            state_dir: "/run/pinion".into(),
            data_dir: "/var/lib/pinion".into(),
            health: HealthInfo {
                stuck_logs: vec![StuckLog { device: "8:1".into(), silent_ms: 1500, containers: 2 }],
                data_disk,
                monitor_silence: Duration::from_millis(2900),
                data_disk_silence: Duration::from_secs(3),
            },
            monitor: Some(MonitorInfo { pid: 7, version: "0.1.0".into(), contract: (1, 6) }),
            user_namespaces: Feature { supported: true, reason: None },
            apparmor: Feature { supported: true, reason: Some("no parser".into()) },
        };
        let facts = DaemonFacts {
            socket: "/run/pinion/pinion.sock".into(),
            state_dir: "/run/pinion".into(),
            data_dir: "/var/lib/pinion".into(),
            cgroup_parent: "/pinion".into(),
            configuration_files: vec!["/etc/pinion/config.toml".into()],
            configuration_since: 5,
            reloads: 1,
            refused: Some(("bad key".into(), 6)),
        };
        let shown = engine_info(&info, &facts);
        let expected = [
            ("network", r#""bridge pinion0""#),
            ("stateDir", r#""/run/pinion""#),
            ("dataDir", r#""/var/lib/pinion""#),
            (
                "health",
                r#"{"dataDisk":{"message":"no answer","ready":false,"reason":"DiskHung"},"silentSeconds":{"dataDisk":3,"monitor":2},"stuckLogs":[{"containers":2,"device":"8:1","silentMs":1500}]}"#,
            ),
            ("userNamespaces", "true"),
            ("apparmor", r#""no parser""#),
            ("monitor", r#"{"contract":"1.6","pid":7,"version":"0.1.0"}"#),
            (
                "daemon",
                r#"{"cgroupParent":"/pinion","configuration":{"files":["/etc/pinion/config.toml"],"refused":"bad key","refusedAt":6,"reloads":1,"since":5},"dataDir":"/var/lib/pinion","socket":"/run/pinion/pinion.sock","stateDir":"/run/pinion"}"#,
            ),
        ];
        for (key, text) in expected {
            assert_eq!(shown[key], text, "{key}");
        }
        assert_eq!(shown.len(), expected.len());
    }
}
