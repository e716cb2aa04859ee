//! `linux.intelRdt`: the class of service (cache and memory bandwidth) that the container's processes are in.
//!
//! A class is a directory of the resctrl file system, as a monitoring group within it is one. Children are born in the
//! class of their parent, so the container's init is put there before it is started. The machine must have the resctrl
//! file system mounted on `/sys/fs/resctrl`, as every distribution that mounts it does.
//!
//! Source: runtime-spec config-linux.md, "IntelRdt"; Documentation/filesystems/resctrl.rst.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, error::During};

const ROOT: &str = "/sys/fs/resctrl";
/// `RDTGROUP_SUPER_MAGIC` of linux/magic.h.
const MAGIC: u64 = 0x0765_5821;
/// Directories of the file system that are no classes.
const RESERVED: [&str; 3] = ["info", "mon_groups", "mon_data"];

/// What is asked for, checked.
#[derive(Debug)]
pub(crate) struct IntelRdt {
    places: Places,
    /// Lines of its `schemata`.
    schemata: Vec<String>,
    /// Whether the class is the user's, and may be there.
    shared: bool,
}

#[derive(Debug)]
struct Places {
    class: PathBuf,
    monitor: Option<PathBuf>,
}

impl IntelRdt {
    /// `id` is the container's: the name of its own class, and of its monitoring group.
    pub(crate) fn parse(rdt: &oci::IntelRdt, id: &str) -> Result<Self, Error> {
        let places = Places::parse(rdt, id)?;
        let lines = rdt.l3_cache_schema.iter().chain(&rdt.mem_bw_schema).chain(&rdt.schemata);
        let schemata: Vec<String> = lines.filter(|line| !line.is_empty()).cloned().collect();
        if let Some(line) = schemata.iter().find(|line| line.contains(['\n', '\0'])) {
            return Err(Error::invalid(format!("linux.intelRdt.schemata: {line:?} is more than one line")));
        }
        match rustix::fs::statfs(ROOT) {
            Ok(found) if found.f_type as u64 == MAGIC => {}
            _ => {
                return Err(Error::invalid(format!(
                    "linux.intelRdt: no resctrl file system is mounted on {ROOT}; where CPU and kernel have resource \
                     control, mount it: mount -t resctrl resctrl {ROOT}"
                )));
            }
        }
        Ok(Self { places, schemata, shared: rdt.clos_id.is_some() })
    }

    /// In the runtime: puts the container's process, which was not started yet, into its class.
    pub(crate) fn apply(&self, pid: i32) -> Result<(), Error> {
        self.make_class()?;
        put(&self.places.class, pid)?;
        match &self.places.monitor {
            Some(monitor) => make(monitor).and_then(|_| put(monitor, pid)),
            None => Ok(()),
        }
    }

    /// As far as it was done; the process has ended.
    pub(crate) fn undo(&self) {
        // What failed first is what to tell.
        let _ = self.places.remove(!self.shared);
    }

    fn make_class(&self) -> Result<(), Error> {
        let class = &self.places.class;
        if self.shared && self.schemata.is_empty() {
            return match class.is_dir() {
                true => Ok(()),
                false => Err(Error::invalid(format!(
                    "linux.intelRdt.closID: there is no class {}, and no schemata to make it with",
                    class.display()
                ))),
            };
        }
        let is_new = make(class)?;
        if is_new || class == Path::new(ROOT) {
            return if self.schemata.is_empty() { Ok(()) } else { self.write_schemata() };
        }
        self.compare()
    }

    fn write_schemata(&self) -> Result<(), Error> {
        let lines: String = self.schemata.iter().map(|line| format!("{}\n", line.trim())).collect();
        fs::write(self.places.class.join("schemata"), &lines).map_err(|error| {
            let said = fs::read_to_string(Path::new(ROOT).join("info/last_cmd_status")).unwrap_or_default();
            let what = format!("write linux.intelRdt.schemata {:?} (the kernel: {})", self.schemata, said.trim());
            Error::system(what, error)
        })
    }

    /// A class that others are in is not changed.
    fn compare(&self) -> Result<(), Error> {
        let path = self.places.class.join("schemata");
        let there = fs::read_to_string(&path).during(|| format!("read {}", path.display()))?;
        let there: Vec<_> = there.lines().flat_map(shares).collect();
        match self.schemata.iter().flat_map(|line| shares(line)).find(|wanted| !there.contains(wanted)) {
            None => Ok(()),
            Some((resource, domain, share)) => Err(Error::invalid(format!(
                "linux.intelRdt.schemata: {resource}:{domain}={share} is not what class {} has",
                self.places.class.display()
            ))),
        }
    }
}

impl Places {
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

    fn remove(&self, class_too: bool) -> Result<(), Error> {
        for directory in self.monitor.iter().chain(class_too.then_some(&self.class)) {
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

/// Takes away what a container of this id had: its monitoring group, and its class unless that has a name of its own.
/// Nothing is left where there was nothing.
///
/// # Errors
/// The kernel's.
pub fn remove(rdt: &oci::IntelRdt, id: &str) -> Result<(), Error> {
    Places::parse(rdt, id)?.remove(rdt.clos_id.is_none())
}

fn check<'a>(field: &str, name: &'a str) -> Result<&'a str, Error> {
    if name.is_empty() || name.contains(['/', '\0', '\n']) || [".", ".."].contains(&name) || RESERVED.contains(&name) {
        return Err(Error::invalid(format!("linux.intelRdt.{field}: {name:?} cannot name a class")));
    }
    Ok(name)
}

/// Whether it was not there before.
fn make(directory: &Path) -> Result<bool, Error> {
    match fs::create_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::system(format!("make {} for linux.intelRdt", directory.display()), error)),
    }
}

fn put(directory: &Path, pid: i32) -> Result<(), Error> {
    let tasks = directory.join("tasks");
    fs::write(&tasks, pid.to_string()).during(|| format!("write process {pid} to {}", tasks.display()))
}

/// `L3:0=00f;1=f` as resource, domain and share, a share without the zeros that the kernel fills it up with.
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
        let places = Places::parse(&rdt(None), "c1").unwrap();
        assert_eq!(places.class, Path::new("/sys/fs/resctrl/c1"));
        assert_eq!(places.monitor.unwrap(), Path::new("/sys/fs/resctrl/c1/mon_groups/c1"));
        assert_eq!(Places::parse(&rdt(Some("/")), "c1").unwrap().class, Path::new(ROOT));
        for wrong in ["", "a/b", "..", "info"] {
            assert!(Places::parse(&rdt(Some(wrong)), "c1").is_err(), "{wrong}");
        }
        assert!(Places::parse(&rdt(None), "").is_err());
    }

    #[test]
    fn schemata_are_compared_by_what_they_say() {
        assert_eq!(shares("    L3:0=0000f;1=0F0"), shares("L3: 0=f;1=f0"));
        assert_ne!(shares("MB:0=20"), shares("MB:0=2"));
    }
}
