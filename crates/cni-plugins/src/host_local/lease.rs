//! Leases: one file per address, named after the address and created with `O_EXCL`, so that no address is assigned
//! twice, even by different programs.
//!
//! Format, lock and `last_reserved_ip.<n>` are those of CNI's `host-local`, so its plugin can use the same directory.
//! Nothing is synced: leases of another boot are free, in directories that this crate used before it.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use syscall::file_lock::lock_briefly_held;

use super::Range;
use crate::Error;
use rtnl::subnet::{address, number};

/// File with the id of the boot that the leases are of. `GC` of the reference plugin keeps files with this prefix.
const BOOT_ID: &str = "last_reserved_ip.boot_id";
/// Longest lease that is read, in bytes.
const LEASE_MAX: u64 = 1024;
/// Permissions of a lease.
const LEASE_MODE: u32 = 0o600;
/// Longest wait for another program that changes leases.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// By how much file times and the clock may differ.
const CLOCK_ERROR: Duration = Duration::from_secs(2);

/// Leases of one network.
#[derive(Clone, Debug)]
pub struct Leases {
    network: String,
    directory: PathBuf,
}

impl Leases {
    /// Opens the directory of a network's leases, and creates it if it does not exist. Releases the leases of another
    /// boot that this crate noted in the directory: no container has outlived it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(network: &str, directory: &Path) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(|e| Error::path("create", directory, e))?;
        let leases = Self { network: network.to_owned(), directory: directory.to_owned() };
        leases.expire()?;
        Ok(leases)
    }

    /// Releases leases that are older than this boot, once per boot. A file shows that it has been done; without it this is
    /// the first use of the directory, and its leases are those of other programs.
    fn expire(&self) -> Result<(), Error> {
        let note = self.directory.join(BOOT_ID);
        let boot_id = boot_id()?;
        let noted = || fs::read_to_string(&note).ok();
        if noted().is_some_and(|noted| noted == boot_id) {
            return Ok(());
        }
        let _lock = self.lock()?;
        let old = match noted() {
            Some(noted) if noted == boot_id => return Ok(()),
            Some(_) => self.addresses()?,
            None => Vec::new(),
        };
        let booted = boot_time();
        for address in old {
            let path = self.directory.join(address.to_string());
            let modified = fs::metadata(&path).and_then(|data| data.modified());
            if modified.is_ok_and(|modified| modified + CLOCK_ERROR < booted) {
                fs::remove_file(&path).map_err(|e| Error::path("remove", &path, e))?;
            }
        }
        // If it fails, as on a full disk, the next one does this again: nothing may depend on it, least of all a release.
        let _ = fs::write(&note, boot_id);
        Ok(())
    }

    /// Takes the file lock of the directory, which plugins in other processes respect too.
    fn lock(&self) -> Result<File, Error> {
        let path = self.directory.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(|e| Error::path("open", &path, e))?;
        lock_briefly_held(&lock, LOCK_TIMEOUT).map_err(|e| Error::path("lock", &path, e))?;
        Ok(lock)
    }

    /// Leases the next free address after the one leased last, so that a released address stays unused as long as
    /// possible. `set` is the number of the set of ranges.
    ///
    /// # Errors
    /// [`Error::Exhausted`], or the kernel's error.
    pub fn take(&self, set: usize, ranges: &[Range], owner: &str, interface: &str) -> Result<(IpAddr, Range), Error> {
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
            if self.create(candidate, owner, interface, &last_path)? {
                return Ok((candidate, range));
            }
            taken = Some(self.addresses()?.into_iter().collect());
        }
        if let Some((candidate, range)) = self.ownerless(ranges)? {
            let path = self.directory.join(candidate.to_string());
            fs::remove_file(&path).map_err(|e| Error::path("remove", &path, e))?;
            if self.create(candidate, owner, interface, &last_path)? {
                return Ok((candidate, range));
            }
        }
        let subnets: Vec<String> = ranges.iter().map(|range| range.subnet.to_string()).collect();
        let leased = self.addresses()?.iter().filter(|ip| ranges.iter().any(|r| r.contains(**ip))).count();
        Err(Error::Exhausted { network: self.network.clone(), ranges: subnets.join(", "), leased })
    }

    /// Returns an address of the ranges whose lease has no owner: who created it was killed before it wrote the name. The
    /// caller holds the lock.
    fn ownerless(&self, ranges: &[Range]) -> Result<Option<(IpAddr, Range)>, Error> {
        let range_of =
            |address: IpAddr| ranges.iter().find(|range| range.contains(address) && !range.is_reserved(address));
        let mut in_ranges = self.addresses()?.into_iter().filter_map(|address| Some((address, *range_of(address)?)));
        Ok(in_ranges.find(|(address, _)| self.is_ownerless(*address)))
    }

    /// Reports whether a lease was created, and its owner was not written. Files that people made have another mode.
    fn is_ownerless(&self, address: IpAddr) -> bool {
        let found = fs::metadata(self.directory.join(address.to_string()));
        found.is_ok_and(|found| found.len() == 0 && found.permissions().mode() & 0o777 == LEASE_MODE)
    }

    /// Leases one address; returns false if it is leased already.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take_one(&self, set: usize, address: IpAddr, owner: &str, interface: &str) -> Result<bool, Error> {
        let _lock = self.lock()?;
        if self.is_ownerless(address) {
            let path = self.directory.join(address.to_string());
            fs::remove_file(&path).map_err(|e| Error::path("remove", &path, e))?;
        }
        self.create(address, owner, interface, &self.directory.join(format!("last_reserved_ip.{set}")))
    }

    fn create(&self, address: IpAddr, owner: &str, interface: &str, last: &Path) -> Result<bool, Error> {
        let path = self.directory.join(address.to_string());
        let mut file = match OpenOptions::new().create_new(true).write(true).mode(LEASE_MODE).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(e) => return Err(Error::path("create", &path, e)),
        };
        let written = file.write_all(format!("{owner}\r\n{interface}").as_bytes());
        written.and_then(|()| fs::write(last, address.to_string())).map_err(|e| {
            // The error of the write is the one to return.
            let _ = fs::remove_file(&path);
            Error::path("write", &path, e)
        })?;
        Ok(true)
    }

    /// Returns the addresses that an interface of a container has, those in `likely` first. Reads all leases unless
    /// `likely` has as many of them as `expected`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of_interface(
        &self,
        owner: &str,
        interface: &str,
        likely: &[IpAddr],
        expected: usize,
    ) -> Result<Vec<IpAddr>, Error> {
        let is_owned = |address: &IpAddr| {
            let text = read_lease(&self.directory.join(address.to_string())).unwrap_or_default();
            let mut lines = text.lines().map(str::trim);
            // Old versions of the reference plugin noted no interface.
            lines.next() == Some(owner) && lines.next().is_none_or(|name| name == interface)
        };
        let mut owned: Vec<IpAddr> = likely.iter().copied().filter(is_owned).collect();
        if owned.len() < expected {
            let others = self.addresses()?;
            owned.extend(others.into_iter().filter(|address| !likely.contains(address)).filter(is_owned));
        }
        Ok(owned)
    }

    /// Releases the leases of an interface of a container.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn release_interface(
        &self,
        owner: &str,
        interface: &str,
        likely: &[IpAddr],
        expected: usize,
    ) -> Result<(), Error> {
        let _lock = self.lock()?;
        for address in self.of_interface(owner, interface, likely, expected)? {
            self.remove(address, |has, _| has == owner)?;
        }
        Ok(())
    }

    /// Releases the leases whose container and interface do not satisfy `is_valid`. The interface is `None` in leases of
    /// old versions of the reference plugin. What cannot be read is kept.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn collect(&self, is_valid: impl Fn(&str, Option<&str>) -> bool) -> Result<(), Error> {
        let _lock = self.lock()?;
        for address in self.addresses()? {
            let path = self.directory.join(address.to_string());
            let Ok(text) = read_lease(&path) else { continue };
            let mut lines = text.lines().map(str::trim);
            if !is_valid(lines.next().unwrap_or_default(), lines.next()) {
                fs::remove_file(&path).map_err(|e| Error::path("remove", &path, e))?;
            }
        }
        Ok(())
    }

    /// Releases those of the addresses that a sandbox has.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn release(&self, addresses: &[IpAddr], owner: &str) -> Result<(), Error> {
        let _lock = self.lock()?;
        for address in addresses {
            self.remove(*address, |has, _| has == owner)?;
        }
        Ok(())
    }

    /// Releases all leases whose owner does not satisfy `owns`, including leases that a crash left without an owner.
    /// All leases are tried.
    ///
    /// # Errors
    /// The first failure. A lease whose owner cannot be read is kept.
    pub fn release_unless(&self, owns: impl Fn(&str, &str) -> bool) -> Result<(), Error> {
        let _lock = self.lock()?;
        let mut first = Ok(());
        for address in self.addresses()? {
            first = first.and(self.remove(address, |has, interface| !owns(has, interface)));
        }
        first
    }

    fn remove(&self, address: IpAddr, matches: impl Fn(&str, &str) -> bool) -> Result<(), Error> {
        let path = self.directory.join(address.to_string());
        match read_lease(&path) {
            Ok(text) if matches(line(&text, 0), line(&text, 1)) => {
                fs::remove_file(&path).map_err(|e| Error::path("remove", &path, e))
            }
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::path("read", &path, e)),
        }
    }

    /// Returns every leased address.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Error> {
        let fail = |e| Error::path("read", &self.directory, e);
        let mut leased = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(fail)? {
            leased.extend(entry.map_err(fail)?.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok()));
        }
        Ok(leased)
    }
}

/// Reads a lease, at most [`LEASE_MAX`] bytes of it: plugins of others may write to the directory.
fn read_lease(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LEASE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the id of this boot.
fn boot_id() -> Result<String, Error> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|e| Error::path("read", path, e))?;
    Ok(KNOWN.get_or_init(|| text.trim().to_owned()).clone())
}

/// Returns when this machine was booted, according to its present clock.
fn boot_time() -> SystemTime {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let since = Duration::from_secs(u64::try_from(since.tv_sec).unwrap_or_default());
    SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Returns a line of a lease: the first is its owner, the second the interface.
fn line(text: &str, index: usize) -> &str {
    text.lines().nth(index).unwrap_or_default().trim()
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
    fn leases_without_an_owner_are_given_away_last() {
        let directory = tempfile::tempdir().unwrap();
        let (leases, ranges) = (leases(&directory), [range("10.1.0.0/29")]);
        for (address, mode) in [("10.1.0.3", 0o600), ("10.1.0.5", 0o644)] {
            let path = directory.path().join(address);
            fs::write(&path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let take = |owner: &str| leases.take(0, &ranges, owner, "eth0").map(|(ip, _)| ip.to_string());
        let taken: Vec<String> = ["a", "b", "c", "d"].map(|owner| take(owner).unwrap()).into();
        assert_eq!(taken, ["10.1.0.2", "10.1.0.4", "10.1.0.6", "10.1.0.3"]);
        take("e").unwrap_err();
        assert!(fs::read_to_string(directory.path().join("10.1.0.3")).unwrap().starts_with("d\r\neth0"));
    }

    #[test]
    fn only_the_owners_leases_are_released() {
        let directory = tempfile::tempdir().unwrap();
        let (leases, ranges) = (leases(&directory), [range("fd00::/64")]);
        let (ip, _) = leases.take(0, &ranges, "a", "eth0").unwrap();
        leases.release(&[ip], "b").unwrap();
        assert_eq!(leases.addresses().unwrap(), [ip]);
        leases.release_unless(|owner, interface| (owner, interface) == ("a", "eth0")).unwrap();
        assert_eq!(leases.addresses().unwrap(), [ip]);
        // A lease that cannot be read is kept, and does not prevent the release of others.
        fs::create_dir(leases.directory.join("fd00::1:1")).unwrap();
        leases.release_unless(|_, _| false).unwrap_err();
        fs::remove_dir(leases.directory.join("fd00::1:1")).unwrap();
        assert!(leases.addresses().unwrap().is_empty());
        leases.release_unless(|_, _| false).unwrap();
        assert!(leases.addresses().unwrap().is_empty());
    }

    #[test]
    fn leases_of_another_boot_are_free() {
        let directory = tempfile::tempdir().unwrap();
        for (address, age) in [("10.1.0.2", 0), ("10.1.0.3", 100_000_000)] {
            let file = File::create(directory.path().join(address)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        fs::write(directory.path().join(BOOT_ID), "another boot").unwrap();
        let now: Vec<IpAddr> = leases(&directory).addresses().unwrap();
        assert_eq!(now, ["10.1.0.2".parse::<IpAddr>().unwrap()]);
        // Within a boot nothing expires, whatever the times of files are.
        let file = File::create(directory.path().join("10.1.0.4")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(leases(&directory).addresses().unwrap().len(), 2);
    }

    #[test]
    fn leases_of_an_interface_are_found_and_collected() {
        let directory = tempfile::tempdir().unwrap();
        let (leases, ranges) = (leases(&directory), [range("10.1.0.0/24")]);
        let take = |owner: &str, interface: &str| leases.take(0, &ranges, owner, interface).unwrap().0;
        let (first, second) = (take("a", "eth0"), take("a", "net1"));
        fs::write(directory.path().join("10.1.0.9"), "a").unwrap();
        let old: IpAddr = "10.1.0.9".parse().unwrap();
        assert_eq!(leases.of_interface("a", "eth0", &[first, second], 1).unwrap(), [first]);
        let mut all = leases.of_interface("a", "net1", &[], 1).unwrap();
        all.sort();
        assert_eq!(all, [second, old]);
        leases.collect(|owner, interface| owner == "a" && interface == Some("net1")).unwrap();
        assert_eq!(leases.addresses().unwrap(), [second]);
        leases.release_interface("a", "net1", &[], 1).unwrap();
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
