use std::fs;

use super::*;
use crate::{Engine, document};

fn imported(text: &str) -> Import {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.toml");
    fs::write(&file, text).expect("written");
    import(&file).expect("translated")
}

fn values(import: &Import) -> toml::Table {
    document(Engine::Containerd, &import.findings).parse().expect("TOML")
}

fn outcome<'a>(import: &'a Import, end: &str) -> &'a Outcome {
    let found = import.findings.iter().find(|finding| finding.key.ends_with(end));
    &found.unwrap_or_else(|| panic!("no finding for {end}")).outcome
}

#[test]
fn a_key_of_version_2_has_the_rule_of_its_successor() {
    let import = imported(
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nmax_container_log_line_size = 1000\n\
         sandbox_image = \"p\"\nstream_server_port = \"7\"\nstream_idle_timeout = \"1h30m0s\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/b\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".registry.mirrors.\"docker.io\"]\nendpoint = [\"https://m.example\"]\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n",
    );
    let values = values(&import);
    assert_eq!(values["containers"]["log_line_max"].as_integer(), Some(1000));
    assert_eq!(values["streaming"]["address"].as_str(), Some("127.0.0.1:7"));
    assert_eq!(values["streaming"]["idle_timeout"].as_str(), Some("90m"));
    assert_eq!(values["cgroup"]["driver"].as_str(), Some("systemd"));
    assert_eq!(values["registries"]["mirrors"]["docker.io"][0].as_str(), Some("https://m.example"));
    assert!(values["network"]["cni_bin_dirs"].as_array().expect("a list").contains(&Value::String("/b".to_owned())));
    assert!(matches!(outcome(&import, "sandbox_image"), Outcome::Unneeded(_)));
    assert!(import.is_complete(), "{:?}", import.findings);
}

#[test]
fn handlers_of_runc_s_shim_are_translated() {
    let import = imported(
        "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\n\
         runtime_type = \"io.containerd.runc.v2\"\nprivileged_without_host_devices = true\n\
         pod_annotations = [\"a.example/*\"]\ncontainer_annotations = [\"b\"]\nbase_runtime_spec = \"/etc/base.json\"\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\nBinaryName = \"/usr/bin/n\"\n\
         Root = \"/run/n\"\nSystemdCgroup = true\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.other]\n\
         runtime_type = \"io.containerd.runc.v2\"\npod_annotations = [\"*.x\"]\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.other.options]\nBinaryName = \"/usr/bin/o\"\n",
    );
    let values = values(&import);
    let expected: toml::Table = toml::from_str(
        "binary = \"/usr/bin/n\"\nroot = \"/run/n\"\nprivileged_without_host_devices = true\n\
         allowed_annotations = [\"a.example/*\", \"b\"]\nbase_runtime_spec = \"/etc/base.json\"\n",
    )
    .expect("TOML");
    assert_eq!(values["handlers"]["nvidia"], Value::Table(expected));
    assert_eq!(values["handlers"]["other"]["binary"].as_str(), Some("/usr/bin/o"));
    let unserved: Vec<_> = import.findings.iter().filter(|f| matches!(f.outcome, Outcome::Unserved(_))).collect();
    assert!(unserved.len() == 1 && unserved[0].key.ends_with("other.pod_annotations"), "{unserved:?}");
}

#[test]
fn handlers_of_other_shims_are_reported_once() {
    let import = imported(
        "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\nruntime_type = \"x\"\n\
         privileged_without_host_devices = true\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\nBinaryName = \"/usr/bin/n\"\n",
    );
    let unserved: Vec<_> = import.findings.iter().filter(|f| matches!(f.outcome, Outcome::Unserved(_))).collect();
    assert_eq!(unserved.len(), 1, "{unserved:?}");
    assert_eq!(unserved[0].key, "plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia");
    assert_eq!(unserved[0].place.as_ref().map(|(_, line)| *line), Some(3));
}

#[test]
fn unknown_keys_are_reported_and_secrets_are_not_kept() {
    let import = imported(
        "version = 3\nrot = \"/x\"\n\
         [plugins.\"io.containerd.cri.v1.images\".registry.configs.\"r.example\".auth]\npassword = \"hunter2\"\n",
    );
    assert_eq!(*outcome(&import, "rot"), Outcome::Unknown);
    assert!(matches!(outcome(&import, "password"), Outcome::Unserved(_)));
    assert!(!format!("{import:?}").contains("hunter2"));
    assert!(!import.is_complete());
}

#[test]
fn imported_files_override_the_file_that_imports_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.toml");
    fs::create_dir(directory.path().join("conf.d")).expect("made");
    fs::write(&file, "version = 3\nimports = [\"conf.d/*.toml\"]\n[debug]\nlevel = \"warn\"\n").expect("written");
    for (name, level) in [("a.toml", "debug"), ("b.toml", "trace"), ("c.txt", "error")] {
        let text = format!("version = 3\nimports = [\"../config.toml\"]\n[debug]\nlevel = \"{level}\"\n");
        fs::write(directory.path().join("conf.d").join(name), text).expect("written");
    }
    let import = import(&file).expect("translated");
    assert_eq!(import.files.len(), 3, "{:?}", import.files);
    assert_eq!(values(&import)["log"]["level"].as_str(), Some("trace"));
}

#[test]
fn files_that_cannot_be_translated_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.toml");
    let error = |text: &str| {
        fs::write(&file, text).expect("written");
        import(&file).expect_err(text).to_string()
    };
    assert!(error("[grpc]\n").contains("config migrate"));
    assert!(error("version = 9\n").contains("only 2, 3 and 4"));
    assert!(error("version = \n").contains(":1: "));
    assert!(error(&format!("version = 3\nroot = \"{}\"", "x".repeat(1 << 20))).contains("larger than"));
    assert!(error("version = 3\nimports = [\"*/x\"]\n").contains("only * and ?"));
    assert!(error(&format!("version = 3\nx = {}{}", "[".repeat(40), "]".repeat(40))).contains("nested"));
}

#[test]
fn the_directory_of_registries_is_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    let host = directory.path().join("certs.d/docker.io");
    fs::create_dir_all(&host).expect("made");
    fs::write(host.join("hosts.toml"), "[host.\"https://m\"]\nca = \"x\"\ndial_timeout = \"1s\"\n").expect("written");
    let file = directory.path().join("config.toml");
    let path = directory.path().join("certs.d");
    let text = format!(
        "version = 3\n[plugins.\"io.containerd.cri.v1.images\".registry]\nconfig_path = \"{}\"\n",
        path.display()
    );
    fs::write(&file, text).expect("written");
    let import = import(&file).expect("translated");
    assert_eq!(values(&import)["registries"]["config_dir"].as_str(), path.to_str());
    assert!(matches!(outcome(&import, "dial_timeout"), Outcome::Unserved(_)));
}

#[test]
fn limits_capabilities_and_variables_of_a_base_specification_are_translated() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = directory.path().join("base.json");
    let config = format!(
        "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\n\
         base_runtime_spec = \"{}\"\n",
        base.display()
    );
    assert!(
        matches!(outcome(&imported(&config), "base_runtime_spec"), Outcome::Unserved(why) if why.contains("No such"))
    );
    // As Amazon's images have it.
    let spec = r#"{"ociVersion": "1.1.0", "process": {"cwd": "/", "noNewPrivileges": true,
        "env": ["PATH=/usr/bin", "LANG=C"], "user": {"uid": 0, "gid": 0},
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_KILL"], "effective": ["CAP_CHOWN"]},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 65536},
                    {"type": "RLIMIT_MEMLOCK", "hard": 18446744073709551615, "soft": 0}]},
        "mounts": [{"type": "proc", "source": "proc", "destination": "/proc"}],
        "linux": {"namespaces": [{"type": "pid"}], "resources": {"devices": [{"allow": false, "access": "rwm"}]},
        "maskedPaths": ["/proc/kcore"]}}"#;
    fs::write(&base, spec).expect("written");
    let import = imported(&config);
    let containers = values(&import)["containers"].clone();
    let list = |key: &str| {
        containers[key].as_array().expect("a list").iter().map(|v| v.as_str().expect("a text")).collect::<Vec<_>>()
    };
    assert_eq!(list("default_ulimits"), ["nofile=65536:1048576", "memlock=0:unlimited"]);
    assert_eq!((list("default_capabilities"), list("default_env")), (vec!["CAP_CHOWN", "CAP_KILL"], vec!["LANG=C"]));
    assert!(import.is_complete(), "{:?}", import.findings);
    let hooks = r#"{"hooks": {"poststart": []}, "mounts": [{"destination": "/vendor"}]}"#;
    fs::write(&base, hooks).expect("written");
    let unserved = |import: &Import| {
        let is_unserved = |finding: &&Finding| matches!(finding.outcome, Outcome::Unserved(_));
        let keys = import.findings.iter().filter(is_unserved).map(|finding| finding.key.clone());
        keys.map(|key| key.rsplit_once(" (").map_or(String::new(), |(_, part)| part.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(unserved(&imported(&config)), ["hooks)", "mounts: /vendor)"]);
}
