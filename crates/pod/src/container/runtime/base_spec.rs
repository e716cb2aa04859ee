//! The base specification of a handler: a container gets from it what neither the request nor Pinion determines.

use std::collections::BTreeMap;

use oci::{Hooks, Linux, Process, Resources, Spec};

/// Adds the properties of the base that the specification of a container does not have.
pub(super) fn add(spec: &mut Spec, base: &Spec) {
    add_missing(&mut spec.annotations, &base.annotations);
    spec.domainname = spec.domainname.take().or_else(|| base.domainname.clone());
    // After those of the container: their sources are numbered.
    let has = |spec: &Spec, destination: &str| spec.mounts.iter().any(|mount| mount.destination == destination);
    for mount in &base.mounts {
        if !has(spec, &mount.destination) {
            spec.mounts.push(mount.clone());
        }
    }
    if let Some(hooks) = &base.hooks {
        add_hooks(spec.hooks.get_or_insert_default(), hooks);
    }
    if let Some(process) = &base.process {
        add_process(spec.process.get_or_insert_default(), process);
    }
    if let Some(linux) = &base.linux {
        add_linux(spec.linux.get_or_insert_default(), linux);
    }
}

fn add_missing<T: Clone>(map: &mut BTreeMap<String, T>, base: &BTreeMap<String, T>) {
    for (name, value) in base {
        map.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// Adds the hooks of the base before those of the container, as they would be if the base had come first.
fn add_hooks(hooks: &mut Hooks, base: &Hooks) {
    for (own, base) in [
        (&mut hooks.prestart, &base.prestart),
        (&mut hooks.create_runtime, &base.create_runtime),
        (&mut hooks.create_container, &base.create_container),
        (&mut hooks.start_container, &base.start_container),
        (&mut hooks.poststart, &base.poststart),
        (&mut hooks.poststop, &base.poststop),
    ] {
        own.splice(0..0, base.iter().cloned());
    }
}

fn add_process(process: &mut Process, base: &Process) {
    let name = |variable: &String| variable.split('=').next().unwrap_or_default().to_owned();
    let known: Vec<String> = process.env.iter().map(name).collect();
    process.env.extend(base.env.iter().filter(|variable| !known.contains(&name(variable))).cloned());
    for limit in &base.rlimits {
        if process.rlimits.iter().all(|own| own.kind != limit.kind) {
            process.rlimits.push(limit.clone());
        }
    }
    process.no_new_privileges |= base.no_new_privileges;
    process.scheduler = process.scheduler.take().or_else(|| base.scheduler.clone());
    process.io_priority = process.io_priority.take().or_else(|| base.io_priority.clone());
    process.exec_cpu_affinity = process.exec_cpu_affinity.take().or_else(|| base.exec_cpu_affinity.clone());
}

fn add_linux(linux: &mut Linux, base: &Linux) {
    add_missing(&mut linux.sysctl, &base.sysctl);
    add_missing(&mut linux.net_devices, &base.net_devices);
    linux.personality = linux.personality.take().or_else(|| base.personality.clone());
    linux.intel_rdt = linux.intel_rdt.take().or_else(|| base.intel_rdt.clone());
    linux.memory_policy = linux.memory_policy.take().or_else(|| base.memory_policy.clone());
    for device in &base.devices {
        if linux.devices.iter().all(|own| own.path != device.path) {
            linux.devices.push(device.clone());
        }
    }
    if let Some(resources) = &base.resources {
        add_resources(linux.resources.get_or_insert_default(), resources);
    }
}

/// Adds limits. Rules for devices are those of the container, except that the base may allow more.
fn add_resources(resources: &mut Resources, base: &Resources) {
    resources.devices.extend(base.devices.iter().filter(|rule| rule.allow && rule.major.is_some()).cloned());
    resources.pids = resources.pids.take().or_else(|| base.pids.clone());
    resources.block_io = resources.block_io.take().or_else(|| base.block_io.clone());
    resources.network = resources.network.take().or_else(|| base.network.clone());
    add_missing(&mut resources.unified, &base.unified);
}

#[cfg(test)]
mod tests {
    use oci::Rlimit;

    use super::*;

    fn parse(json: &str) -> Spec {
        oci::from_json(json.as_bytes()).expect("a specification")
    }

    #[test]
    fn the_base_adds_what_the_container_lacks() {
        let base = parse(
            r#"{"annotations": {"a": "base", "b": "base"},
                "process": {"cwd": "/base", "env": ["PATH=/base", "MORE=1"], "noNewPrivileges": true,
                            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2}]},
                "mounts": [{"destination": "/proc"}, {"destination": "/base"}],
                "hooks": {"poststop": [{"path": "/base"}]},
                "linux": {"sysctl": {"x": "base", "y": "base"}, "maskedPaths": ["/base"], "cgroupsPath": "/base"}}"#,
        );
        let mut spec = parse(
            r#"{"annotations": {"a": "own"}, "process": {"cwd": "/", "env": ["PATH=/own"]},
                "mounts": [{"destination": "/proc"}], "hooks": {"poststop": [{"path": "/own"}]},
                "linux": {"sysctl": {"x": "own"}}}"#,
        );
        add(&mut spec, &base);
        let values: Vec<&str> = spec.annotations.values().map(String::as_str).collect();
        assert_eq!(values, ["own", "base"]);
        let process = spec.process.expect("a process");
        assert_eq!((process.cwd.as_str(), process.env), ("/", vec!["PATH=/own".to_owned(), "MORE=1".to_owned()]));
        assert!(process.no_new_privileges);
        assert_eq!(process.rlimits, [Rlimit { kind: "RLIMIT_NOFILE".into(), soft: 1, hard: 2 }]);
        let destinations: Vec<&str> = spec.mounts.iter().map(|mount| mount.destination.as_str()).collect();
        assert_eq!(destinations, ["/proc", "/base"]);
        let hooks: Vec<String> = spec.hooks.expect("hooks").poststop.into_iter().map(|hook| hook.path).collect();
        assert_eq!(hooks, ["/base", "/own"]);
        let linux = spec.linux.expect("linux");
        assert_eq!(linux.sysctl.values().collect::<Vec<_>>(), ["own", "base"]);
        assert_eq!((linux.cgroups_path, linux.masked_paths.len()), (None, 0), "the container determines them");
    }
}
