use std::fs;

use super::*;
use crate::{Engine, document};

/// Translates `crio.conf`, one drop-in, and `registries.conf`.
fn imported(text: &str, drop_in: &str, registries: &str) -> Import {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, containers) = (directory.path().join("crio.conf"), directory.path().join("containers"));
    fs::create_dir_all(directory.path().join("crio.conf.d")).expect("made");
    fs::create_dir_all(containers.join("certs.d/r.example")).expect("made");
    fs::write(&file, text).expect("written");
    fs::write(directory.path().join("crio.conf.d/10-x"), drop_in).expect("written");
    fs::write(containers.join("registries.conf"), registries).expect("written");
    import(&file, &containers).expect("translated")
}

fn values(import: &Import) -> toml::Table {
    document(Engine::Crio, &import.findings).parse().expect("TOML")
}

fn unserved(import: &Import) -> Vec<&str> {
    let is_unserved = |outcome: &Outcome| matches!(outcome, Outcome::Unserved(_) | Outcome::Unknown);
    import.findings.iter().filter(|found| is_unserved(&found.outcome)).map(|found| found.key.as_str()).collect()
}

#[test]
fn drop_ins_override_the_file_and_defaults_are_those_of_crio() {
    let import = imported(
        "[crio.runtime]\npids_limit = 10\ndefault_sysctls = [\"net.core.somaxconn = 9\"]\n",
        "[crio.runtime]\npids_limit = 20\n[crio.metrics]\nenable_metrics = true\n[crio.api]\nstream_address = \"::1\"\n",
        "",
    );
    let values = values(&import);
    assert_eq!(values["containers"]["pids_limit"].as_integer(), Some(20));
    assert_eq!(values["containers"]["default_sysctls"][0].as_str(), Some("net.core.somaxconn=9"));
    assert_eq!(values["containers"]["default_capabilities"].as_array().map(Vec::len), Some(9));
    assert_eq!(values["cgroup"]["driver"].as_str(), Some("systemd"));
    assert_eq!(values["metrics"]["address"].as_str(), Some("127.0.0.1:9090"));
    assert_eq!(values["streaming"]["address"].as_str(), Some("[::1]:0"));
    assert!(values["registries"]["config_dir"].as_str().is_some_and(|path| path.ends_with("containers/certs.d")));
    assert!(unserved(&import).is_empty(), "{:?}", unserved(&import));
}

#[test]
fn mirrors_of_registries_are_translated() {
    let import = imported(
        "",
        "",
        "unqualified-search-registries = [\"quay.io\"]\n\
         [[registry]]\nprefix = \"docker.io\"\nlocation = \"hub.example\"\n\
         [[registry.mirror]]\nlocation = \"m.example:5000\"\ninsecure = true\n\
         [[registry.mirror]]\nlocation = \"m.example/proxy\"\n\
         [[registry]]\nlocation = \"plain.example\"\ninsecure = true\n\
         [[registry]]\nlocation = \"bad.example\"\nblocked = true\n\
         [[registry]]\nprefix = \"*.corp.example\"\nlocation = \"c.example\"\n",
    );
    let registries = values(&import)["registries"].clone();
    assert_eq!(registries["default_registry"].as_str(), Some("quay.io"));
    let mirrors: Vec<_> = registries["mirrors"]["docker.io"].as_array().expect("a list").iter().collect();
    let urls: Vec<_> = mirrors.iter().filter_map(|url| url.as_str()).collect();
    assert_eq!(urls, ["https://m.example:5000", "https://hub.example"]);
    assert!(registries.get("plain_http").is_none(), "TLS without verification does not become plain HTTP");
    assert_eq!(
        unserved(&import),
        [
            "registry.location (docker.io)",
            "registry.mirror.insecure (docker.io)",
            "registry.insecure (plain.example)",
            "registry.blocked (bad.example)",
            "registry.prefix (*.corp.example)"
        ]
    );
}

#[test]
fn handlers_of_type_oci_are_translated() {
    let import = imported(
        "[crio.runtime.runtimes.crun]\nruntime_root = \"/run/crun\"\n[crio.runtime.runtimes.nvidia]\n\
         runtime_path = \"/usr/bin/nvidia-container-runtime\"\nruntime_type = \"oci\"\nruntime_root = \"/run/n\"\n\
         allowed_annotations = [\"io.example\"]\nprivileged_without_host_devices = true\nmonitor_env = [\"A=1\"]\n\
         [crio.runtime.runtimes.nvidia.default_annotations]\n\"run.oci/x\" = \"1\"\n",
        "",
        "",
    );
    assert_eq!(unserved(&import), Vec::<&str>::new());
    let values = values(&import);
    let expected: toml::Table = toml::from_str(
        "binary = \"/usr/bin/nvidia-container-runtime\"\nroot = \"/run/n\"\nenvironment = [\"A=1\"]\n\
         allowed_annotations = [\"io.example*\"]\nprivileged_without_host_devices = true\n\
         [default_annotations]\n\"run.oci/x\" = \"1\"\n",
    )
    .expect("TOML");
    assert_eq!(values["handlers"].as_table().expect("a table").len(), 1, "the default one is Pinion itself");
    assert_eq!(values["handlers"]["nvidia"], Value::Table(expected));
}

#[test]
fn handlers_and_unknown_keys_are_reported() {
    let import = imported(
        "[crio.runtime.runtimes.crun]\nruntime_root = \"/run/crun\"\n[crio.runtime.runtimes.kata]\nruntime_path = \"/k\"\n\
         runtime_type = \"vm\"\n[crio.runtime]\nmanage_ns_lifecycle = true\nlog_to_journald = true\n",
        "",
        "",
    );
    let mut keys = unserved(&import);
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["crio.runtime.log_to_journald", "crio.runtime.manage_ns_lifecycle", "crio.runtime.runtimes.kata"]
    );
}
