//! What an OCI runtime or a shim reports about itself: its version, and the features of the runtime.

use crate::handler::{RuntimeFacts, RuntimeFeatures};

/// Maximum number of bytes of a version.
const VERSION_MAX: usize = 100;
/// Oldest releases that have the command line of [`crate::OciHandler`].
const OLDEST: [(&str, [u32; 2]); 2] = [("runc", [1, 0]), ("crun", [1, 0])];
/// Version of the specification that bundles have: the major version must be equal.
const SPECIFICATION_MAJOR: u32 = 1;

/// Returns what the outputs of `--version` and `features` mean; `None` for a command that failed.
pub(super) fn parse(version: Option<&[u8]>, features: Option<&[u8]>) -> RuntimeFacts {
    let text = version.map(String::from_utf8_lossy).unwrap_or_default();
    let reported = features.and_then(|text| oci::from_json::<oci::Features>(text).ok());
    let specification = match &reported {
        Some(features) => Some((features.oci_version_min.clone(), features.oci_version_max.clone())),
        None => {
            text.lines().find_map(|line| line.strip_prefix("spec: ")).map(|line| (line.to_owned(), line.to_owned()))
        }
    };
    let (program, number) = program_and_version(&text);
    RuntimeFacts {
        too_old: too_old(&program, &number).or_else(|| other_specification(specification?)),
        version: format!("{program} {number}").trim().to_owned(),
        features: reported.map(|features| convert(&features)),
    }
}

/// Returns what the output of `-info` of a shim means; `None` for a shim without that command.
pub(super) fn parse_info(output: Option<&[u8]>) -> RuntimeFacts {
    let Some(info) = output.and_then(|output| shim::Info::parse(output).ok()) else { return RuntimeFacts::default() };
    let reported = info.features.and_then(|text| oci::from_json::<oci::Features>(&text).ok());
    let mut version = format!("{} {}", info.name, info.version.trim_start_matches('v')).trim().to_owned();
    version.retain(|character| !character.is_control());
    version.truncate(version.floor_char_boundary(VERSION_MAX));
    RuntimeFacts { version, features: reported.map(|features| convert(&features)), too_old: None }
}

/// Returns the name and the version in the first line of `--version`: `runc version 1.2.3`, `youki version: 0.5.3`.
fn program_and_version(text: &str) -> (String, String) {
    let mut line: String = text.lines().next().unwrap_or_default().trim().to_owned();
    line.retain(|character| !character.is_control());
    line.truncate(line.floor_char_boundary(VERSION_MAX));
    match line.split_once(" version") {
        Some((program, version)) => (program.to_owned(), version.trim_start_matches(':').trim().to_owned()),
        None => (line, String::new()),
    }
}

/// Returns why a release is too old, if it is.
fn too_old(program: &str, version: &str) -> Option<String> {
    let (_, oldest) = OLDEST.iter().find(|(name, _)| *name == program)?;
    let actual = numbers(version)?;
    let [major, minor] = oldest;
    (actual < *oldest).then(|| format!("it is {program} {version}; install {program} {major}.{minor} or newer"))
}

/// Returns why a runtime does not accept the specification of bundles, if it does not.
fn other_specification((min, max): (String, String)) -> Option<String> {
    let (oldest, newest) = (numbers(&min)?[0], numbers(&max)?[0]);
    let accepts = (oldest..=newest).contains(&SPECIFICATION_MAJOR);
    (!accepts).then(|| {
        format!(
            "it implements version {min} to {max} of the OCI runtime specification, and version {SPECIFICATION_MAJOR} \
             is needed; install another release"
        )
    })
}

/// Returns the first two numbers of a version such as `v1.2.3-rc1`.
fn numbers(version: &str) -> Option<[u32; 2]> {
    let mut parts = version.trim_start_matches('v').split(|character: char| !character.is_ascii_digit());
    Some([parts.next()?.parse().ok()?, parts.next().and_then(|part| part.parse().ok()).unwrap_or(0)])
}

fn convert(features: &oci::Features) -> RuntimeFeatures {
    let linux = features.linux.clone().unwrap_or_default();
    let is_set = |switch: &Option<oci::FeatureSwitch>| switch.as_ref().and_then(|switch| switch.enabled);
    let extensions = linux.mount_extensions.unwrap_or_default();
    let id_mapped_mounts = extensions.idmap.is_some_and(|idmap| idmap.is_enabled());
    let cgroup = linux.cgroup.unwrap_or_default();
    let is_checkpoint = |(name, value): (&String, &String)| name.ends_with(".checkpoint.enabled") && value == "true";
    RuntimeFeatures {
        // Releases without id-mapped mounts cannot join a user namespace by its path either: runc before 1.2.
        user_namespaces: id_mapped_mounts && linux.namespaces.iter().any(|namespace| namespace == "user"),
        recursive_readonly_mounts: features.mount_options.iter().any(|option| option == "rro"),
        id_mapped_mounts,
        seccomp: is_set(&linux.seccomp),
        apparmor: is_set(&linux.apparmor),
        selinux: is_set(&linux.selinux),
        cgroup_v1: cgroup.v1,
        cgroup_v2: cgroup.v2,
        systemd: cgroup.systemd,
        checkpoint: features.annotations.iter().any(is_checkpoint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_has_the_version() {
        let version = |text: &str| parse(Some(text.as_bytes()), None).version;
        assert_eq!(version("runc version 1.1.5+ds1\ncommit: x\nspec: 1.0.2-dev\n"), "runc 1.1.5+ds1");
        assert_eq!(version("youki version: 0.5.3\n"), "youki 0.5.3");
        assert_eq!(version("something else\n"), "something else");
        assert_eq!(version(""), "");
        assert_eq!(version(&"\x1bä".repeat(300)).len(), VERSION_MAX);
        assert_eq!(parse(None, None), RuntimeFacts::default());
    }

    #[test]
    fn a_release_that_is_too_old_is_named_with_the_one_that_is_needed() {
        let too_old = |text: &str| parse(Some(text.as_bytes()), None).too_old.unwrap_or_default();
        assert_eq!(too_old("runc version 1.0.0-rc95\n"), "");
        assert_eq!(too_old("crun version 0.21\n"), "it is crun 0.21; install crun 1.0 or newer");
        assert!(too_old("other version 7\nspec: 0.9.1\n").starts_with("it implements version 0.9.1"));
        assert_eq!(too_old("other version 7\nspec: 1.2.0+dev\n"), "");
    }

    #[test]
    fn features_are_those_that_the_runtime_reports() {
        let with = |json: &str| parse(None, Some(json.as_bytes())).features;
        assert_eq!(with("not JSON"), None);
        let old = r#"{"ociVersionMin": "1.0.0", "ociVersionMax": "1.0.2-dev", "mountOptions": ["ro", "rro"],
            "linux": {"namespaces": ["user"], "cgroup": {"v1": true, "v2": null}, "seccomp": {"enabled": false}}}"#;
        let expected = RuntimeFeatures {
            recursive_readonly_mounts: true,
            cgroup_v1: Some(true),
            seccomp: Some(false),
            ..RuntimeFeatures::default()
        };
        assert_eq!(with(old), Some(expected));
        let new = r#"{"ociVersionMin": "1.0.0", "ociVersionMax": "1.3.0",
            "linux": {"namespaces": ["user"], "mountExtensions": {"idmap": {"enabled": true}}},
            "annotations": {"org.opencontainers.runc.checkpoint.enabled": "true"}}"#;
        let expected =
            RuntimeFeatures { user_namespaces: true, id_mapped_mounts: true, checkpoint: true, ..Default::default() };
        assert_eq!(with(new), Some(expected));
    }
}
