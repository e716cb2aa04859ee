//! The output of `pinion info --json`, whose members are also the lines of the text.

use cri_proto::pinion::{Condition, DaemonInfo, Feature, HealthInfo, InfoResponse, PluginInfo, health_info::StuckLog};
use serde_json::{Map, Value, json};

use crate::command::handlers;

pub(super) fn info(info: &InfoResponse) -> Value {
    let mut value = json!({
        "apparmor": info.apparmor.as_ref().map(feature),
        "containers": info.containers,
        "daemon": info.daemon.as_ref().map(daemon),
        "dataDir": info.data_dir,
        "handlers": info.handlers,
        "health": info.health.as_ref().map(health),
        "imageRoot": info.image_root,
        "network": info.network,
        "networkReady": info.network_ready.as_ref().map(condition),
        "pid": info.pid,
        "pods": info.pods,
        "runtime": info.runtime.as_ref().map(condition),
        "stateDir": info.state_dir,
        "userNamespaces": info.user_namespaces.as_ref().map(feature),
        "version": info.version,
    });
    if let Some(monitor) = &info.monitor {
        let contract = format!("{}.{}", monitor.contract_major, monitor.contract_minor);
        value["monitor"] = json!({"pid": monitor.pid, "version": monitor.version, "contract": contract});
    }
    let details = info.handler_details.iter().filter(|handler| !handler.binary.is_empty());
    let details: Map<String, Value> =
        details.map(|handler| (handler.name.clone(), handlers::summary(handler))).collect();
    if !details.is_empty() {
        value["handlerDetails"] = details.into();
    }
    if !info.plugins.is_empty() {
        value["plugins"] = info.plugins.iter().map(plugin).collect();
    }
    value
}

fn plugin(plugin: &PluginInfo) -> Value {
    json!({
        "name": plugin.name,
        "pid": plugin.pid,
        "launched": plugin.launched,
        "synchronized": plugin.synchronized,
    })
}

/// Returns the reason why the feature is not supported, if the daemon knows it.
fn feature(feature: &Feature) -> Value {
    if feature.reason.is_empty() { json!(feature.supported) } else { json!(feature.reason) }
}

fn condition(condition: &Condition) -> Value {
    json!({"ready": condition.ready, "reason": condition.reason, "message": condition.message})
}

fn health(health: &HealthInfo) -> Value {
    let stuck = |log: &StuckLog| json!({"device": log.device, "silentMs": log.silent_ms, "containers": log.containers});
    json!({
        "stuckLogs": health.stuck_logs.iter().map(stuck).collect::<Vec<_>>(),
        "dataDisk": health.data_disk.as_ref().map(condition),
        "silentSeconds": {"monitor": health.monitor_silent_seconds, "dataDisk": health.data_disk_silent_seconds},
    })
}

fn daemon(daemon: &DaemonInfo) -> Value {
    json!({
        "socket": daemon.socket,
        "stateDir": daemon.state_dir,
        "dataDir": daemon.data_dir,
        "cgroupParent": daemon.cgroup_parent,
        "configuration": {
            "files": daemon.configuration_files,
            "since": daemon.configuration_since,
            "reloads": daemon.reloads,
            "refused": daemon.refused.as_ref().map(|refused| &refused.error),
            "refusedAt": daemon.refused.as_ref().map(|refused| refused.at),
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use cri_proto::pinion::{MonitorInfo, RefusedConfiguration};

    use super::*;

    /// The output of the versions in which the daemon sent JSON.
    const INFO: &str = r#"{
  "apparmor": "no parser",
  "containers": 3,
  "daemon": {
    "cgroupParent": "/pinion",
    "configuration": {
      "files": [
        "/etc/pinion/config.toml"
      ],
      "refused": "bad key",
      "refusedAt": 6,
      "reloads": 1,
      "since": 5
    },
    "dataDir": "/var/lib/pinion",
    "socket": "/run/pinion/pinion.sock",
    "stateDir": "/run/pinion"
  },
  "dataDir": "/var/lib/pinion",
  "handlers": [
    "",
    "pinion"
  ],
  "health": {
    "dataDisk": {
      "message": "no answer",
      "ready": false,
      "reason": "DiskHung"
    },
    "silentSeconds": {
      "dataDisk": 3,
      "monitor": 2
    },
    "stuckLogs": [
      {
        "containers": 2,
        "device": "8:1",
        "silentMs": 1500
      }
    ]
  },
  "imageRoot": "/var/lib/pinion/images",
  "monitor": {
    "contract": "1.6",
    "pid": 7,
    "version": "0.1.0"
  },
  "network": "bridge pinion0",
  "networkReady": {
    "message": "",
    "ready": true,
    "reason": ""
  },
  "pid": 6,
  "pods": 2,
  "runtime": {
    "message": "",
    "ready": true,
    "reason": ""
  },
  "stateDir": "/run/pinion",
  "userNamespaces": true,
  "version": "0.1.0"
}"#;

    pub(in super::super) fn sample() -> InfoResponse {
        let ready = || Some(Condition { ready: true, ..Condition::default() });
        let data_disk = Condition { ready: false, reason: "DiskHung".into(), message: "no answer".into() };
        let daemon = DaemonInfo {
            socket: "/run/pinion/pinion.sock".into(),
            state_dir: "/run/pinion".into(),
            data_dir: "/var/lib/pinion".into(),
            cgroup_parent: "/pinion".into(),
            configuration_files: vec!["/etc/pinion/config.toml".into()],
            configuration_since: 5,
            reloads: 1,
            refused: Some(RefusedConfiguration { error: "bad key".into(), at: 6 }),
        };
        InfoResponse {
            plugins: Vec::new(),
            handler_details: Vec::new(),
            format: 1,
            version: "0.1.0".into(),
            pid: 6,
            pods: 2,
            containers: 3,
            handlers: vec![String::new(), "pinion".into()],
            state_dir: "/run/pinion".into(),
            data_dir: "/var/lib/pinion".into(),
            image_root: "/var/lib/pinion/images".into(),
            runtime: ready(),
            network_ready: ready(),
            network: "bridge pinion0".into(),
            monitor: Some(MonitorInfo { pid: 7, version: "0.1.0".into(), contract_major: 1, contract_minor: 6 }),
            health: Some(HealthInfo {
                stuck_logs: vec![StuckLog { device: "8:1".into(), silent_ms: 1500, containers: 2 }],
                data_disk: Some(data_disk),
                monitor_silent_seconds: 2,
                data_disk_silent_seconds: 3,
            }),
            user_namespaces: Some(Feature { supported: true, reason: String::new() }),
            apparmor: Some(Feature { supported: false, reason: "no parser".into() }),
            daemon: Some(daemon),
        }
    }

    #[test]
    fn the_daemon_has_the_json_that_scripts_read() {
        assert_eq!(serde_json::to_string_pretty(&info(&sample())).expect("JSON"), INFO);
        let mut other = sample();
        other.monitor = None;
        other.apparmor = Some(Feature::default());
        other.daemon.as_mut().expect("set").refused = None;
        let shown = info(&other);
        assert!(shown.get("monitor").is_none(), "no monitor is connected");
        assert_eq!(shown["apparmor"], false);
        assert!(shown["daemon"]["configuration"]["refused"].is_null());
        assert!(shown["daemon"]["configuration"]["refusedAt"].is_null());
    }
}
