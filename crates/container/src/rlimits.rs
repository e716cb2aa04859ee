//! `process.rlimits`: resource limits of the process.

use rustix::process::{Resource, Rlimit, setrlimit};
use syscall::resource_limit;

use crate::{Error, error::During};

/// The specification's value for no limit.
const INFINITY: u64 = u64::MAX;

const NAMES: [(&str, Resource); 16] = [
    ("RLIMIT_AS", Resource::As),
    ("RLIMIT_CORE", Resource::Core),
    ("RLIMIT_CPU", Resource::Cpu),
    ("RLIMIT_DATA", Resource::Data),
    ("RLIMIT_FSIZE", Resource::Fsize),
    ("RLIMIT_LOCKS", Resource::Locks),
    ("RLIMIT_MEMLOCK", Resource::Memlock),
    ("RLIMIT_MSGQUEUE", Resource::Msgqueue),
    ("RLIMIT_NICE", Resource::Nice),
    ("RLIMIT_NOFILE", Resource::Nofile),
    ("RLIMIT_NPROC", Resource::Nproc),
    ("RLIMIT_RSS", Resource::Rss),
    ("RLIMIT_RTPRIO", Resource::Rtprio),
    ("RLIMIT_RTTIME", Resource::Rttime),
    ("RLIMIT_SIGPENDING", Resource::Sigpending),
    ("RLIMIT_STACK", Resource::Stack),
];

/// Resource limits to set.
#[derive(Debug, Default)]
pub(crate) struct Rlimits(Vec<(&'static str, Resource, Rlimit)>);

impl Rlimits {
    /// Parses the entries. A hard limit above the caller's is lowered to it, with a warning, if the caller may not
    /// raise hard limits (`CAP_SYS_RESOURCE`).
    pub(crate) fn parse(entries: &[oci::Rlimit], may_raise: bool, warnings: &mut Vec<String>) -> Result<Self, Error> {
        let mut limits: Vec<(&'static str, Resource, Rlimit)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let known = NAMES.iter().find(|(name, _)| *name == entry.kind);
            let (name, resource) =
                *known.ok_or_else(|| Error::invalid(format!("process.rlimits: unknown type {:?}", entry.kind)))?;
            if limits.iter().any(|(other, ..)| *other == name) {
                return Err(Error::invalid(format!("process.rlimits: {name} is listed twice")));
            }
            if entry.soft > entry.hard {
                return Err(Error::invalid(format!(
                    "process.rlimits: {name}: soft {} exceeds hard {}",
                    entry.soft, entry.hard
                )));
            }
            let mut hard = entry.hard;
            let maximum = if may_raise { None } else { get(name, resource)?.maximum };
            let maximum = maximum.unwrap_or(INFINITY);
            if hard > maximum {
                warnings.push(format!(
                    "process.rlimits: {name}: {hard} lowered to {maximum}, the maximum that this host grants"
                ));
                hard = maximum;
            }
            limits.push((name, resource, Rlimit { current: finite(entry.soft.min(hard)), maximum: finite(hard) }));
        }
        Ok(Self(limits))
    }

    /// Raises hard limits, which is not permitted inside a user namespace. Runs in the intermediate process, with the
    /// caller's privileges.
    pub(crate) fn raise(&self) -> Result<(), Error> {
        for (name, resource, limit) in &self.0 {
            let current = get(name, *resource)?;
            if current.maximum.is_some_and(|current| limit.maximum.is_none_or(|requested| requested > current)) {
                let raised = Rlimit { maximum: limit.maximum, ..current };
                setrlimit(*resource, raised).during(|| format!("raise {name} to {limit:?}"))?;
            }
        }
        Ok(())
    }

    /// Sets the limits. Runs in the child as root, and late, because a low limit of open files would break the setup.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        for (name, resource, limit) in &self.0 {
            setrlimit(*resource, *limit).during(|| format!("set {name} to {limit:?}"))?;
        }
        Ok(())
    }
}

fn get(name: &str, resource: Resource) -> Result<Rlimit, Error> {
    resource_limit::get(resource).during(|| format!("read {name}"))
}

fn finite(value: u64) -> Option<u64> {
    (value != INFINITY).then_some(value)
}

#[cfg(test)]
mod tests {
    use rustix::process::getrlimit;

    use super::*;

    fn limit(kind: &str, soft: u64, hard: u64) -> oci::Rlimit {
        oci::Rlimit { kind: kind.to_owned(), soft, hard }
    }

    #[test]
    fn invalid_entries_are_named() {
        let parse = |entries: &[oci::Rlimit]| Rlimits::parse(entries, true, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(parse(&[limit("RLIMIT_X", 1, 1)]), "process.rlimits: unknown type \"RLIMIT_X\"");
        assert_eq!(parse(&[limit("RLIMIT_NOFILE", 2, 1)]), "process.rlimits: RLIMIT_NOFILE: soft 2 exceeds hard 1");
        let twice = [limit("RLIMIT_CPU", 1, 1), limit("RLIMIT_CPU", 1, 1)];
        assert_eq!(parse(&twice), "process.rlimits: RLIMIT_CPU is listed twice");
    }

    #[test]
    fn clamped_to_the_hosts_maximum() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let mut warnings = Vec::new();
        let limits = Rlimits::parse(&[limit("RLIMIT_NOFILE", INFINITY, INFINITY)], false, &mut warnings).unwrap();
        assert_eq!(limits.0[0].2.maximum, maximum);
        assert_eq!(warnings.len(), usize::from(maximum.is_some()));
    }
}
