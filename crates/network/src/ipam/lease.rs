//! Leases: one file per address, named after the address and created with `O_EXCL`, so that no address is assigned
//! twice, even by different programs.
//!
//! Format, lock and `last_reserved_ip.<n>` are those of CNI's `host-local`, so its plugin can use the same directory.
//! Nothing is synced: the directory is on a tmpfs, and leases do not survive a reboot.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::Range;
use crate::Error;
use rtnl::subnet::{address, number};

/// Leases of one network.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    network: String,
    directory: PathBuf,
}

impl Leases {
    pub(crate) fn open(network: &str, directory: &Path) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(|e| Error::path("create", directory, e))?;
        Ok(Self { network: network.to_owned(), directory: directory.to_owned() })
    }

    /// Takes the file lock of the directory, which plugins in other processes respect too.
    fn lock(&self) -> Result<File, Error> {
        let path = self.directory.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(|e| Error::path("open", &path, e))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| Error::path("lock", &path, e))?;
        Ok(lock)
    }

    /// Leases the next free address after the one leased last, so that a released address stays unused as long as
    /// possible.
    pub(crate) fn take(
        &self,
        set: usize,
        ranges: &[Range],
        owner: &str,
        interface: &str,
    ) -> Result<(IpAddr, Range), Error> {
        let _lock = self.lock()?;
        let last_path = self.directory.join(format!("last_reserved_ip.{set}"));
        let last = fs::read_to_string(&last_path).ok().and_then(|text| text.trim().parse::<IpAddr>().ok());
        let start = last.and_then(|last| ranges.iter().position(|r| r.contains(last)).map(|at| (at, last)));
        // The directory is only read when an address turns out to be taken.
        let mut taken: Option<HashSet<IpAddr>> = None;
        for (range, candidate) in candidates(ranges, start) {
            if range.is_reserved(candidate) || taken.as_ref().is_some_and(|taken| taken.contains(&candidate)) {
                continue;
            }
            let path = self.directory.join(candidate.to_string());
            match OpenOptions::new().create_new(true).write(true).open(&path) {
                Ok(mut file) => {
                    let written = file.write_all(format!("{owner}\r\n{interface}").as_bytes());
                    let written = written.and_then(|()| fs::write(&last_path, candidate.to_string()));
                    if let Err(e) = written {
                        // The error of the write is the one to return.
                        let _ = fs::remove_file(&path);
                        return Err(Error::path("write", &path, e));
                    }
                    return Ok((candidate, range));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    taken = Some(self.addresses()?.into_iter().collect());
                }
                Err(e) => return Err(Error::path("create", &path, e)),
            }
        }
        let subnets: Vec<String> = ranges.iter().map(|range| range.subnet.to_string()).collect();
        let leased = self.addresses()?.iter().filter(|ip| ranges.iter().any(|r| r.contains(**ip))).count();
        Err(Error::Exhausted { network: self.network.clone(), subnet: subnets.join(", "), leased })
    }

    /// Releases those of the addresses that a sandbox has.
    pub(crate) fn release(&self, addresses: &[IpAddr], owner: &str) -> Result<(), Error> {
        let _lock = self.lock()?;
        for address in addresses {
            self.remove(*address, |has| has == owner)?;
        }
        Ok(())
    }

    /// Releases all leases whose owner does not satisfy `owns`, including leases that a crash left without an owner.
    /// All leases are tried.
    ///
    /// # Errors
    /// The first failure. A lease whose owner cannot be read is kept.
    pub(crate) fn release_unless(&self, owns: impl Fn(&str) -> bool) -> Result<(), Error> {
        let _lock = self.lock()?;
        let mut first = Ok(());
        for address in self.addresses()? {
            first = first.and(self.remove(address, |has| !owns(has)));
        }
        first
    }

    fn remove(&self, address: IpAddr, matches: impl Fn(&str) -> bool) -> Result<(), Error> {
        let path = self.directory.join(address.to_string());
        match fs::read_to_string(&path) {
            Ok(text) if matches(owner(&text)) => fs::remove_file(&path).map_err(|e| Error::path("remove", &path, e)),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::path("read", &path, e)),
        }
    }

    /// Returns every leased address.
    fn addresses(&self) -> Result<Vec<IpAddr>, Error> {
        let fail = |e| Error::path("read", &self.directory, e);
        let mut leased = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            leased.extend(entry.map_err(fail)?.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok()));
        }
        Ok(leased)
    }
}

fn owner(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

/// Iterates over every address of the ranges once, starting after `start` and wrapping around.
fn candidates(ranges: &[Range], start: Option<(usize, IpAddr)>) -> impl Iterator<Item = (Range, IpAddr)> {
    let span = |range: Range, from: u128, to: u128| (from..=to).map(move |n| (range, address(n, range.subnet.address)));
    let (at, behind) = start.map_or((0, None), |(at, last)| (at, Some(number(last))));
    let head = ranges.get(at).copied().zip(behind).map(|(r, last)| span(r, last + 1, number(r.last)));
    let skip = usize::from(behind.is_some());
    let rest: Vec<Range> = ranges.iter().cycle().skip(at + skip).take(ranges.len() - skip).copied().collect();
    let rest = rest.into_iter().flat_map(move |r| span(r, number(r.first), number(r.last)));
    let tail = ranges.get(at).copied().zip(behind).map(|(r, last)| span(r, number(r.first), last));
    head.into_iter().flatten().chain(rest).chain(tail.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(directory: &tempfile::TempDir) -> Leases {
        Leases::open("test", directory.path()).unwrap()
    }

    fn range(subnet: &str) -> Range {
        Range::whole(subnet.parse().unwrap()).unwrap()
    }

    #[test]
    fn addresses_are_reused_as_late_as_possible() {
        let directory = tempfile::tempdir().unwrap();
        let (leases, ranges) = (leases(&directory), [range("10.1.0.0/29")]);
        let take = |owner: &str| leases.take(0, &ranges, owner, "eth0").map(|(ip, _)| ip.to_string());
        assert_eq!(take("a").unwrap(), "10.1.0.2");
        assert_eq!(take("b").unwrap(), "10.1.0.3");
        leases.release(&["10.1.0.2".parse().unwrap()], "a").unwrap();
        assert_eq!(take("c").unwrap(), "10.1.0.4", "10.1.0.2 was used last but one");
        assert_eq!(take("d").unwrap(), "10.1.0.5");
        assert_eq!(take("e").unwrap(), "10.1.0.6");
        assert_eq!(take("f").unwrap(), "10.1.0.2");
        let error = take("g").unwrap_err().to_string();
        assert!(error.contains("10.1.0.0/29") && error.contains("5 leased"), "{error}");
    }

    #[test]
    fn only_the_owners_leases_are_released() {
        let directory = tempfile::tempdir().unwrap();
        let (leases, ranges) = (leases(&directory), [range("fd00::/64")]);
        let (ip, _) = leases.take(0, &ranges, "a", "eth0").unwrap();
        leases.release(&[ip], "b").unwrap();
        assert_eq!(leases.addresses().unwrap(), [ip]);
        leases.release_unless(|owner| owner == "a").unwrap();
        assert_eq!(leases.addresses().unwrap(), [ip]);
        // A lease that cannot be read is kept, and does not prevent the release of others.
        fs::create_dir(leases.directory.join("fd00::1:1")).unwrap();
        leases.release_unless(|_| false).unwrap_err();
        fs::remove_dir(leases.directory.join("fd00::1:1")).unwrap();
        assert!(leases.addresses().unwrap().is_empty());
        leases.release_unless(|_| false).unwrap();
        assert!(leases.addresses().unwrap().is_empty());
    }

    #[test]
    fn two_ranges_are_iterated_with_wraparound() {
        let ranges = [range("10.1.0.0/30"), range("10.2.0.0/30")];
        let all = |start| candidates(&ranges, start).map(|(_, ip)| ip.to_string()).collect::<Vec<_>>();
        assert_eq!(all(None), ["10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2"]);
        assert_eq!(all(Some((1, "10.2.0.1".parse().unwrap()))), ["10.2.0.2", "10.1.0.1", "10.1.0.2", "10.2.0.1"]);
    }

    #[test]
    fn no_address_is_leased_twice_concurrently() {
        let directory = tempfile::tempdir().unwrap();
        let (leases, ranges) = (leases(&directory), [range("10.1.0.0/24")]);
        let taken: HashSet<IpAddr> = std::thread::scope(|scope| {
            let take = || (0..16).map(|_| leases.take(0, &ranges, "x", "eth0").unwrap().0).collect::<Vec<_>>();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 128);
    }
}
