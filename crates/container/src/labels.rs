//! AppArmor and SELinux: labels that confine the process from execve on.

use std::fs;

use crate::{Error, error::During, procfs::Procfs};

/// The labels to set for execve.
#[derive(Debug, Default, Clone)]
pub(crate) struct Labels {
    apparmor: Option<String>,
    selinux: Option<String>,
}

impl Labels {
    pub(crate) fn parse(process: &oci::Process) -> Result<Self, Error> {
        let given = |label: &Option<String>| label.clone().filter(|label| !label.is_empty());
        let mut labels = Self { apparmor: given(&process.apparmor_profile), selinux: given(&process.selinux_label) };
        for (field, label) in [("apparmorProfile", &labels.apparmor), ("selinuxLabel", &labels.selinux)] {
            if label.as_ref().is_some_and(|label| label.contains(['\0', '\n']) || label.len() > 4096) {
                return Err(Error::invalid(format!("process.{field}: has a NUL byte or line end, or is too long")));
            }
        }
        if labels.apparmor.is_some() && !apparmor_enabled() {
            if labels.apparmor.as_deref() != Some("unconfined") {
                let name = labels.apparmor.unwrap_or_default();
                return Err(Error::invalid(format!(
                    "process.apparmorProfile: {name:?}, but AppArmor is not enabled on this host"
                )));
            }
            labels.apparmor = None;
        }
        if labels.selinux.is_some() && !selinux_enabled() {
            return Err(Error::invalid("process.selinuxLabel: is set, but SELinux is not enabled on this host"));
        }
        Ok(labels)
    }

    /// Writes the labels. Runs in the child.
    pub(crate) fn apply(&self, proc: &Procfs) -> Result<(), Error> {
        if let Some(profile) = &self.apparmor {
            let value = format!("exec {profile}");
            // Kernels before 5.8 have only the second file.
            proc.write("self/attr/apparmor/exec", &value)
                .or_else(|_| proc.write("self/attr/exec", &value))
                .during(|| format!("set the AppArmor profile {profile:?} (is it loaded?)"))?;
        }
        if let Some(label) = &self.selinux {
            proc.write("self/attr/exec", label).during(|| format!("set the SELinux label {label:?}"))?;
        }
        Ok(())
    }
}

fn apparmor_enabled() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|value| value.starts_with('Y'))
}

/// Whether SELinux is enabled: selinuxfs is registered only if it was enabled at boot.
pub(crate) fn selinux_enabled() -> bool {
    fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.lines().any(|line| line.ends_with("\tselinuxfs")))
}
