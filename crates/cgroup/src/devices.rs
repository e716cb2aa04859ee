//! Reduces device rules to a default and exceptions, which are applied through v1 files or a BPF program.

use oci::DeviceRule;

use crate::{Error, GroupPath, tree::Tree};

/// Most exceptions of one group: their BPF program has fewer than the kernel's limit of 4096 instructions.
const EXCEPTIONS_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Char,
}

/// Access bits, as in `BPF_DEVCG_ACC_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(pub(crate) u8);

impl Access {
    pub(crate) const MKNOD: u8 = 1;
    pub(crate) const READ: u8 = 2;
    pub(crate) const WRITE: u8 = 4;
    pub(crate) const ALL: Self = Self(7);

    fn parse(text: Option<&str>) -> Result<Self, Error> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Self::ALL) };
        let mut bits = 0;
        for c in text.chars() {
            bits |= match c {
                'r' => Self::READ,
                'w' => Self::WRITE,
                'm' => Self::MKNOD,
                _ => return Err(Error::invalid("devices.access", format!("{c:?} is not one of r, w, m"))),
            };
        }
        Ok(Self(bits))
    }

    pub(crate) fn text(self) -> String {
        let letters = [(Self::READ, 'r'), (Self::WRITE, 'w'), (Self::MKNOD, 'm')];
        letters.into_iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, letter)| letter).collect()
    }
}

/// Devices that are exempt from the default. A number of `None` matches every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    pub(crate) kind: Kind,
    pub(crate) major: Option<u32>,
    pub(crate) minor: Option<u32>,
    pub(crate) access: Access,
}

impl Exception {
    const fn char(major: u32, minor: Option<u32>) -> Self {
        Self { kind: Kind::Char, major: Some(major), minor, access: Access::ALL }
    }

    const fn mknod(kind: Kind) -> Self {
        Self { kind, major: None, minor: None, access: Access(Access::MKNOD) }
    }

    fn same_devices(&self, other: &Self) -> bool {
        (self.kind, self.major, self.minor) == (other.kind, other.major, other.minor)
    }

    /// Reports whether these devices include all devices of `other`.
    fn covers(&self, other: &Self) -> bool {
        let includes = |a: Option<u32>, b: Option<u32>| a.is_none() || a == b;
        self.kind == other.kind && includes(self.major, other.major) && includes(self.minor, other.minor)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let intersect = |a: Option<u32>, b: Option<u32>| a.is_none() || b.is_none() || a == b;
        self.kind == other.kind && intersect(self.major, other.major) && intersect(self.minor, other.minor)
    }

    /// Formats the exception as v1 parses it: `c 1:3 rwm`.
    fn line(&self) -> String {
        let number = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        let kind = if self.kind == Kind::Char { 'c' } else { 'b' };
        format!("{kind} {}:{} {}", number(self.major), number(self.minor), self.access.text())
    }
}

/// Accesses that every container has: mknod of any device (without opening it), `null`, `zero`, `full`, `random`,
/// `urandom`, `tty`, `ptmx` and the ptys (runtime spec, "Default Devices").
const ALWAYS: [Exception; 10] = [
    Exception::mknod(Kind::Char),
    Exception::mknod(Kind::Block),
    Exception::char(1, Some(3)),
    Exception::char(1, Some(5)),
    Exception::char(1, Some(7)),
    Exception::char(1, Some(8)),
    Exception::char(1, Some(9)),
    Exception::char(5, Some(0)),
    Exception::char(5, Some(2)),
    Exception::char(136, None),
];

/// The devices that a group may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DevicePolicy {
    pub(crate) allow: bool,
    pub(crate) exceptions: Vec<Exception>,
}

/// Denies all devices but those of [`ALWAYS`].
impl Default for DevicePolicy {
    fn default() -> Self {
        Self { allow: false, exceptions: ALWAYS.to_vec() }
    }
}

impl DevicePolicy {
    /// Applies the rules in order, starting from "deny all". Returns `None` if no device is restricted.
    pub(crate) fn from_spec(rules: &[DeviceRule]) -> Result<Option<Self>, Error> {
        if rules.is_empty() {
            return Ok(None);
        }
        let mut policy = Self { allow: false, exceptions: Vec::new() };
        for rule in rules {
            policy.add(rule)?;
        }
        if !policy.allow {
            for exception in ALWAYS {
                policy.except(exception);
            }
        }
        if policy.exceptions.len() > EXCEPTIONS_MAX {
            return Err(Error::invalid("devices", format!("more than {EXCEPTIONS_MAX} different rules")));
        }
        Ok(Some(policy).filter(|policy| !policy.allow || !policy.exceptions.is_empty()))
    }

    fn add(&mut self, rule: &DeviceRule) -> Result<(), Error> {
        let access = Access::parse(rule.access.as_deref())?;
        let (major, minor) = (parse_number("devices.major", rule.major)?, parse_number("devices.minor", rule.minor)?);
        let kinds: &[Kind] = match rule.kind.as_deref() {
            None | Some("" | "a") if major.is_none() && minor.is_none() && access == Access::ALL => {
                self.allow = rule.allow;
                self.exceptions.clear();
                return Ok(());
            }
            None | Some("" | "a") => &[Kind::Char, Kind::Block],
            Some("c" | "u") => &[Kind::Char],
            Some("b") => &[Kind::Block],
            Some(other) => return Err(Error::invalid("devices.type", format!("{other:?} is not one of a, b, c"))),
        };
        for kind in kinds {
            let devices = Exception { kind: *kind, major, minor, access };
            if rule.allow == self.allow { self.revoke(devices)? } else { self.except(devices) }
        }
        Ok(())
    }

    fn except(&mut self, devices: Exception) {
        match self.exceptions.iter_mut().find(|known| known.same_devices(&devices)) {
            Some(known) => known.access.0 |= devices.access.0,
            None => self.exceptions.push(devices),
        }
    }

    /// Returns devices to the default. A part of an exception cannot be removed: neither v1 nor a short program can
    /// express that, and a rule that denies must not be ignored.
    fn revoke(&mut self, devices: Exception) -> Result<(), Error> {
        for known in &mut self.exceptions {
            if devices.covers(known) {
                known.access.0 &= !devices.access.0;
            } else if devices.overlaps(known) && devices.access.0 & known.access.0 != 0 {
                let reason = format!(
                    "{:?} is a part of the earlier rule {:?} and cannot be excluded from it",
                    devices.line(),
                    known.line()
                );
                return Err(Error::invalid("devices", reason));
            }
        }
        self.exceptions.retain(|known| known.access.0 != 0);
        Ok(())
    }

    /// Writes the v1 files. The kernel refuses a rule that the parent group does not allow with EPERM.
    pub(crate) fn write_v1(&self, tree: &Tree, group: &GroupPath) -> Result<(), Error> {
        let file = |allow: bool| format!("{}/devices.{}", group.relative(), if allow { "allow" } else { "deny" });
        tree.write(&file(self.allow), "a")?;
        let path = file(!self.allow);
        let opened = tree.open(&path, rustix::fs::OFlags::WRONLY).map_err(|e| tree.write_failed(&path, "", e))?;
        for exception in &self.exceptions {
            let line = exception.line();
            crate::tree::write_once(&opened, &line).map_err(|errno| tree.write_failed(&path, &line, errno))?;
        }
        Ok(())
    }
}

/// Parses a device number; if it is absent or -1, it matches every number.
fn parse_number(field: &str, number: Option<i64>) -> Result<Option<u32>, Error> {
    match number {
        None | Some(-1) => Ok(None),
        Some(n) => match u32::try_from(n) {
            Ok(n) if i32::try_from(n).is_ok() => Ok(Some(n)),
            _ => Err(Error::invalid(field, format!("{n} is not a device number"))),
        },
    }
}

#[cfg(test)]
mod tests;
