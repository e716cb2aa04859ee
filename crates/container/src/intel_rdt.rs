//! `linux.intelRdt`: the class of service (cache and memory bandwidth) of the container's processes.
//!
//! A class is a directory of the resctrl file system, and so is a monitoring group within it. Children inherit the
//! class of their parent, so the container's init is added to it before it is started. The resctrl file system must be
//! mounted on `/sys/fs/resctrl`, where distributions mount it.
//!
//! Source: runtime-spec config-linux.md, "IntelRdt"; Documentation/filesystems/resctrl.rst.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::process::Pid;

use crate::{Error, error::During};

const ROOT: &str = "/sys/fs/resctrl";
/// `RDTGROUP_SUPER_MAGIC` of linux/magic.h.
const MAGIC: u64 = 0x0765_5821;
/// Directories of the file system that are not classes.
const RESERVED: [&str; 3] = ["info", "mon_groups", "mon_data"];

/// The checked properties.
#[derive(Debug)]
pub(crate) struct IntelRdt {
    paths: RdtPaths,
    /// Lines for the `schemata` file of the class.
    schemata: Vec<String>,
    /// Whether the spec names the class (`closID`), so that it may exist already.
    shared: bool,
}

#[derive(Debug)]
struct RdtPaths {
    class: PathBuf,
    monitor: Option<PathBuf>,
}

impl IntelRdt {
    /// Checks the properties. `id` is the container's: it names the monitoring group, and the class if `closID` is
    /// absent.
    pub(crate) fn parse(rdt: &oci::IntelRdt, id: &str) -> Result<Self, Error> {
        let paths = RdtPaths::parse(rdt, id)?;
        let lines = rdt.l3_cache_schema.iter().chain(&rdt.mem_bw_schema).chain(&rdt.schemata);
        let schemata: Vec<String> = lines.filter(|line| !line.is_empty()).cloned().collect();
        if let Some(line) = schemata.iter().find(|line| line.contains(['\n', '\0'])) {
            return Err(Error::invalid(format!("linux.intelRdt.schemata: {line:?} is more than one line")));
        }
        match rustix::fs::statfs(ROOT) {
            Ok(stat) if stat.f_type as u64 == MAGIC => {}
            _ => {
                return Err(Error::invalid(format!(
                    "linux.intelRdt: no resctrl file system is mounted on {ROOT}; where CPU and kernel have resource \
                     control, mount it: mount -t resctrl resctrl {ROOT}"
                )));
            }
        }
        Ok(Self { paths, schemata, shared: rdt.clos_id.is_some() })
    }

    /// Adds the container's process, which is not started yet, to its class. Runs in the runtime.
    pub(crate) fn apply(&self, pid: Pid) -> Result<(), Error> {
        self.create_class()?;
        add_task(&self.paths.class, pid)?;
        match &self.paths.monitor {
            Some(monitor) => create(monitor).and_then(|_| add_task(monitor, pid)),
            None => Ok(()),
        }
    }

    /// Rolls back what was done; the process has exited.
    pub(crate) fn undo(&self) {
        // The first error is the one to report.
        let _ = self.paths.remove(!self.shared);
    }

    fn create_class(&self) -> Result<(), Error> {
        let class = &self.paths.class;
        if self.shared && self.schemata.is_empty() {
            return match class.is_dir() {
                true => Ok(()),
                false => Err(Error::invalid(format!(
                    "linux.intelRdt.closID: class {} does not exist; set schemata to create it",
                    class.display()
                ))),
            };
        }
        let is_new = create(class)?;
        if is_new || class == Path::new(ROOT) {
            return if self.schemata.is_empty() { Ok(()) } else { self.write_schemata() };
        }
        self.check_existing()
    }

    fn write_schemata(&self) -> Result<(), Error> {
        let lines: String = self.schemata.iter().map(|line| format!("{}\n", line.trim())).collect();
        fs::write(self.paths.class.join("schemata"), &lines).map_err(|error| {
            let status = fs::read_to_string(Path::new(ROOT).join("info/last_cmd_status")).unwrap_or_default();
            let operation =
                format!("write linux.intelRdt.schemata {:?} (last_cmd_status: {})", self.schemata, status.trim());
            Error::system(operation, error)
        })
    }

    /// Checks that an existing class has the requested schemata. It is not changed, because other containers may use
    /// it.
    fn check_existing(&self) -> Result<(), Error> {
        let path = self.paths.class.join("schemata");
        let current = fs::read_to_string(&path).during(|| format!("read {}", path.display()))?;
        let current: Vec<_> = current.lines().flat_map(shares).collect();
        match self.schemata.iter().flat_map(|line| shares(line)).find(|requested| !current.contains(requested)) {
            None => Ok(()),
            Some((resource, domain, share)) => Err(Error::invalid(format!(
                "linux.intelRdt.schemata: class {} exists with other schemata than {resource}:{domain}={share}",
                self.paths.class.display()
            ))),
        }
    }
}

impl RdtPaths {
    fn parse(rdt: &oci::IntelRdt, id: &str) -> Result<Self, Error> {
        let root = Path::new(ROOT);
        let class = match rdt.clos_id.as_deref() {
            Some("/") => root.to_owned(),
            Some(name) => root.join(check("closID", name)?),
            None => root.join(check("closID is absent, and the container's id", id)?),
        };
        let monitor = rdt.enable_monitoring || rdt.enable_cmt || rdt.enable_mbm;
        let monitor = match monitor {
            true => Some(class.join("mon_groups").join(check("enableMonitoring: the container's id", id)?)),
            false => None,
        };
        Ok(Self { class, monitor })
    }

    fn remove(&self, remove_class: bool) -> Result<(), Error> {
        for directory in self.monitor.iter().chain(remove_class.then_some(&self.class)) {
            match fs::remove_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::system(format!("remove {}", directory.display()), error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes the monitoring group of a container, and its class unless the spec names it. Succeeds if they do not exist.
///
/// # Errors
/// Those of rmdir(2).
pub fn remove(rdt: &oci::IntelRdt, id: &str) -> Result<(), Error> {
    RdtPaths::parse(rdt, id)?.remove(rdt.clos_id.is_none())
}

fn check<'a>(field: &str, name: &'a str) -> Result<&'a str, Error> {
    if name.is_empty() || name.contains(['/', '\0', '\n']) || [".", ".."].contains(&name) || RESERVED.contains(&name) {
        return Err(Error::invalid(format!("linux.intelRdt.{field}: {name:?} cannot name a class")));
    }
    Ok(name)
}

/// Creates a directory; returns whether it is new.
fn create(directory: &Path) -> Result<bool, Error> {
    match fs::create_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::system(format!("create {} for linux.intelRdt", directory.display()), error)),
    }
}

fn add_task(directory: &Path, pid: Pid) -> Result<(), Error> {
    let tasks = directory.join("tasks");
    fs::write(&tasks, pid.to_string()).during(|| format!("write process {pid} to {}", tasks.display()))
}

/// Parses a line like `L3:0=00f;1=f` into resource, domain and share. Leading zeros of a share, with which the kernel
/// pads, are removed.
fn shares(line: &str) -> Vec<(String, String, String)> {
    let Some((resource, domains)) = line.split_once(':') else { return Vec::new() };
    let share = |domain: &str| {
        let (domain, share) = domain.split_once('=')?;
        let share = share.trim().trim_start_matches('0').to_lowercase();
        Some((resource.trim().to_owned(), domain.trim().trim_start_matches('0').to_owned(), share))
    };
    domains.split(';').filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_by_their_user_or_after_the_container() {
        let rdt = |clos: Option<&str>| oci::IntelRdt {
            clos_id: clos.map(str::to_owned),
            enable_monitoring: true,
            ..Default::default()
        };
        let paths = RdtPaths::parse(&rdt(None), "c1").unwrap();
        assert_eq!(paths.class, Path::new("/sys/fs/resctrl/c1"));
        assert_eq!(paths.monitor.unwrap(), Path::new("/sys/fs/resctrl/c1/mon_groups/c1"));
        assert_eq!(RdtPaths::parse(&rdt(Some("/")), "c1").unwrap().class, Path::new(ROOT));
        for wrong in ["", "a/b", "..", "info"] {
            assert!(RdtPaths::parse(&rdt(Some(wrong)), "c1").is_err(), "{wrong}");
        }
        assert!(RdtPaths::parse(&rdt(None), "").is_err());
    }

    #[test]
    fn schemata_are_compared_by_their_values() {
        assert_eq!(shares("    L3:0=0000f;1=0F0"), shares("L3: 0=f;1=f0"));
        assert_ne!(shares("MB:0=20"), shares("MB:0=2"));
    }
}
