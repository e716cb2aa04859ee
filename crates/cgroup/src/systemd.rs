//! Groups that systemd makes: a transient scope per container, asked for over D-Bus.
//!
//! ```text
//! Unit::parse("machine.slice:libpod:4f…")      libpod-4f….scope below machine.slice
//!   │ start(pid)     StartTransientUnit, wait for the job; the process is in the scope then
//!   ▼
//! Group              the directory that systemd made (v1: also those it does not make), with all limits
//!   │ update         SetUnitProperties, then the kernel's files
//!   ▼ remove         StopUnit, wait for the job; ResetFailedUnit; what systemd did not make
//! ```
//!
//! systemd is told every limit it has a word for, and every limit is written into the kernel's files too: so the limits
//! that systemd knows nothing of stand, and those it knows stand still when it writes its own again.
//!
//! The client is our own (`bus.rs`): a socket and two messages, where a library brings an event loop.
//!
//! Needs systemd 236 or newer (`Delegate=` of scopes and `AttachProcessesToUnit` for users' scopes). Source: the page
//! org.freedesktop.systemd1(5), and "Control Group APIs and Delegation" of systemd's documentation.

mod bus;
mod literal;
mod message;
mod properties;
mod value;

use std::collections::BTreeMap;

use bus::{Bus, Owner, Refusal};
use properties::Properties;
use value::Value;

use crate::{Error, Group, GroupPath, Hierarchies, Limits, ownership};

/// Longest name of a unit, bytes (`UNIT_NAME_MAX`).
const NAME_MAX: usize = 255;
/// How often a scope of the same name that failed before is cleared away.
const ATTEMPTS_MAX: usize = 8;

/// A transient scope that is or will be made for a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    name: String,
    slice: String,
    owner: Owner,
    /// Of annotations.
    properties: Properties,
    description: String,
}

impl Unit {
    /// Parses `linux.cgroupsPath` of the systemd driver, `slice:prefix:name`: the scope `prefix-name.scope` below the
    /// slice. Without a slice `system.slice` (of a user's systemd: `user.slice`); without a prefix `name.scope`;
    /// without a path (`None` or empty) `pinrun-<id>.scope`.
    ///
    /// Whose systemd is asked follows from who asks: root of the machine the machine's, anybody else their own.
    pub fn parse(path: Option<&str>, id: &str) -> Result<Self, Error> {
        let owner = if ownership::is_machine_root() { Owner::System } else { Owner::User };
        let default_slice = if owner == Owner::System { "system.slice" } else { "user.slice" };
        let given = path.unwrap_or("");
        let wrong = |reason| Error::Path { path: given.chars().take(256).collect(), reason };
        let (slice, prefix, name) = match given.split(':').collect::<Vec<_>>()[..] {
            [""] => ("", "pinrun", id),
            [slice, prefix, name] => (slice, prefix, name),
            _ => return Err(wrong("not of the form slice:prefix:name that the systemd driver needs")),
        };
        if name.is_empty() {
            return Err(wrong("its name, after the second colon, is empty"));
        }
        let slice = if slice.is_empty() { default_slice } else { slice };
        expand(slice).map_err(wrong)?;
        let name = if prefix.is_empty() { format!("{name}.scope") } else { format!("{prefix}-{name}.scope") };
        check_unit_name(&name).map_err(wrong)?;
        let description = format!("Container {id}");
        Ok(Self { name, slice: slice.to_owned(), owner, properties: Vec::new(), description })
    }

    /// The group of a scope that was made before (`name`: [`Group::unit_name`]). It may be gone: systemd takes away a
    /// scope whose last process ended, but lists one that failed until [`Group::remove`].
    pub fn open(name: &str, trees: &Hierarchies, path: &GroupPath) -> Result<Group, Error> {
        let unit = Some(Box::new(Self::named(name)?));
        Ok(Group { unit, ..Group::found(trees, path) })
    }

    fn named(name: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::Path { path: name.chars().take(256).collect(), reason };
        check_unit_name(name).map_err(wrong)?;
        let owner = if ownership::is_machine_root() { Owner::System } else { Owner::User };
        let (slice, description) = (String::new(), String::new());
        Ok(Self { name: name.to_owned(), slice, owner, properties: Vec::new(), description })
    }

    /// With the properties that annotations `org.systemd.property.<Name>` ask for (value: GVariant text).
    pub fn with_annotations(mut self, annotations: &BTreeMap<String, String>) -> Result<Self, Error> {
        self.properties = literal::properties(annotations)?;
        Ok(self)
    }

    /// `prefix-name.scope`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where systemd will put it, if it is this machine's first systemd; known for sure after [`Unit::start`].
    pub fn expected_path(&self) -> Result<GroupPath, Error> {
        let slice = expand(&self.slice).map_err(|reason| Error::Path { path: self.slice.clone(), reason })?;
        GroupPath::parse(&format!("{slice}/{}", self.name))
    }

    /// Makes the scope with this process in it, and gives it its limits. The process should be waiting: it is moved.
    /// Undoes itself on failure.
    pub fn start(&self, trees: &Hierarchies, pid: i32, limits: &Limits) -> Result<Group, Error> {
        limits.check(trees)?;
        let mut bus = self.connect("start")?;
        self.start_transient(&mut bus, trees, pid, limits)?;
        let made = trees.path_of(pid).and_then(|path| Group::adopt(trees, &path, limits, pid));
        match made {
            Ok(group) => Ok(Group { unit: Some(Box::new(self.clone())), ..group }),
            Err(error) => {
                // What failed first is what to tell. The process is killed at once: the first of a PID namespace does
                // not heed the signal that systemd sends before, and is waited for 90 s.
                let kill = [Value::text(&*self.name), Value::text("all"), Value::I32(9)];
                let _ = bus.manager("KillUnit", &kill);
                let _ = self.stop_over(&mut bus);
                Err(error)
            }
        }
    }

    fn start_transient(&self, bus: &mut Bus, trees: &Hierarchies, pid: i32, limits: &Limits) -> Result<(), Error> {
        let v2 = trees.memory_is_v2();
        let mut properties: Properties = vec![
            ("Description".into(), Value::text(&*self.description)),
            ("Slice".into(), Value::text(&*self.slice)),
            ("Wants".into(), Value::texts([&*self.slice])),
            ("PIDs".into(), Value::List("u".into(), vec![Value::U32(pid as u32)])),
            ("Delegate".into(), Value::Bool(true)),
            ("DefaultDependencies".into(), Value::Bool(false)),
        ];
        properties.extend(properties::accounting(v2));
        properties.extend(properties::of_limits(limits, v2));
        properties.retain(|(name, _)| !self.properties.iter().any(|(given, _)| given == name));
        properties.extend(self.properties.iter().cloned());
        let mut left = properties.len() + ATTEMPTS_MAX;
        loop {
            let arguments = [
                Value::text(&*self.name),
                Value::text("fail"),
                list(&properties),
                Value::List("(sa(sv))".into(), Vec::new()),
            ];
            match bus.job("StartTransientUnit", &arguments) {
                Ok(result) if result == "done" => return Ok(()),
                Ok(result) => return Err(self.failed("start", format!("its job ended as {result:?}"))),
                Err(refusal) if left > 0 && self.overcome(bus, &refusal, &mut properties) => left -= 1,
                Err(refusal) => return Err(self.failed("start", refusal)),
            }
        }
    }

    /// Whether another try may succeed: a failed unit of the same name was cleared, or a property taken out that this
    /// systemd is too old for.
    fn overcome(&self, bus: &mut Bus, refusal: &Refusal, properties: &mut Properties) -> bool {
        let Refusal::Said(name, text) = refusal else { return false };
        if name == "org.freedesktop.systemd1.UnitExists" {
            return self.clear_failed(bus);
        }
        let before = properties.len();
        properties.retain(|(name, _)| !(properties::may_go_without(name) && text.contains(name.as_str())));
        properties.len() < before
    }

    /// Takes away what is left of a failed unit; `false`: it is in use.
    fn clear_failed(&self, bus: &mut Bus) -> bool {
        bus.manager("ResetFailedUnit", &[Value::text(&*self.name)]).is_ok()
            && bus.manager("GetUnit", &[Value::text(&*self.name)]).is_err()
    }

    /// Tells systemd the limits that it has a word for.
    pub(crate) fn update(&self, group: &Group, limits: &Limits) -> Result<(), Error> {
        let mut properties = properties::of_limits(limits, group.trees.memory_is_v2());
        let mut bus = self.connect("update")?;
        while !properties.is_empty() {
            let arguments = [Value::text(&*self.name), Value::Bool(true), list(&properties)];
            match bus.manager("SetUnitProperties", &arguments) {
                Ok(_) => break,
                Err(refusal) if self.overcome(&mut bus, &refusal, &mut properties) => {}
                Err(refusal) => return Err(self.failed("update", refusal)),
            }
        }
        Ok(())
    }

    /// Moves a process into the scope, or into a group of this name below it.
    pub(crate) fn attach(&self, below: &str, pid: i32) -> Result<(), Error> {
        let below = if below.is_empty() { String::new() } else { format!("/{below}") };
        let pids = Value::List("u".into(), vec![Value::U32(pid as u32)]);
        let arguments = [Value::text(&*self.name), Value::text(below), pids];
        let answer = self.connect("move a process into")?.manager("AttachProcessesToUnit", &arguments);
        answer.map(drop).map_err(|refusal| self.failed("move a process into", refusal))
    }

    /// Ends the scope: systemd kills what is left in it and removes its directories. One that is gone is fine.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.stop_over(&mut self.connect("stop")?)
    }

    fn stop_over(&self, bus: &mut Bus) -> Result<(), Error> {
        let name = || Value::text(&*self.name);
        match bus.job("StopUnit", &[name(), Value::text("replace")]) {
            Ok(_) => {}
            Err(Refusal::Said(error, _)) if error == "org.freedesktop.systemd1.NoSuchUnit" => {}
            Err(refusal) => return Err(self.failed("stop", refusal)),
        }
        // A scope that failed stays listed until it is told to go; most are gone already.
        let _ = bus.manager("ResetFailedUnit", &[name()]);
        Ok(())
    }

    fn connect(&self, operation: &'static str) -> Result<Bus, Error> {
        Bus::connect(self.owner).map_err(|refusal| self.failed(operation, refusal))
    }

    fn failed(&self, operation: &'static str, reason: impl ToString) -> Error {
        Error::Systemd { operation, unit: self.name.clone(), reason: reason.to_string() }
    }
}

/// `a(sv)`.
fn list(properties: &Properties) -> Value {
    let pair = |(name, value): &(String, Value)| {
        Value::Struct(vec![Value::text(&**name), Value::Variant(Box::new(value.clone()))])
    };
    Value::List("(sv)".into(), properties.iter().map(pair).collect())
}

/// Letters that a unit's name may have (`VALID_CHARS` of systemd).
fn check_unit_name(name: &str) -> Result<(), &'static str> {
    if name.len() > NAME_MAX {
        return Err("the unit's name is longer than 255 bytes");
    }
    if name.is_empty() || name.starts_with('.') {
        return Err("the unit's name is empty or begins with a dot");
    }
    match name.chars().all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c)) {
        true => Ok(()),
        false => Err("a unit's name has letters, digits and :-_.\\@ only"),
    }
}

/// The path of a slice: `a-b.slice` is `/a.slice/a-b.slice`, and `-.slice` the root.
fn expand(slice: &str) -> Result<String, &'static str> {
    let stem = slice.strip_suffix(".slice").filter(|stem| !stem.is_empty());
    let stem = stem.ok_or("its slice does not end with .slice")?;
    check_unit_name(slice)?;
    if stem == "-" {
        return Ok(String::new());
    }
    if stem.starts_with('-') || stem.ends_with('-') || stem.contains("--") {
        return Err("its slice has a dash without a name before or after it");
    }
    let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    Ok(ends.map(|end| format!("/{}.slice", &stem[..end])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths() {
        let unit = Unit::parse(Some("a-b.slice:cri:4f"), "4f").unwrap();
        assert_eq!((unit.name(), unit.slice.as_str()), ("cri-4f.scope", "a-b.slice"));
        assert_eq!(unit.expected_path().unwrap().as_str(), "/a.slice/a-b.slice/cri-4f.scope");
        assert_eq!(Unit::parse(Some("-.slice::x"), "x").unwrap().expected_path().unwrap().as_str(), "/x.scope");
        assert_eq!(Unit::parse(None, "id").unwrap().name(), "pinrun-id.scope");
        assert_eq!(Unit::parse(Some(""), "id").unwrap().name(), "pinrun-id.scope");
        assert!(Unit::parse(Some("::x"), "x").unwrap().slice.ends_with(".slice"));
    }

    #[test]
    fn refuses_paths() {
        for bad in [
            "/a/b",
            "a:b",
            "a:b:c:d",
            "a:b:c",
            "a--b.slice:p:n",
            "-a.slice:p:n",
            "a/b.slice:p:n",
            ".slice:p:n",
            "a.slice:p:",
            "a.slice:p/q:n",
            "a.slice:p:n n",
        ] {
            let error = Unit::parse(Some(bad), "id").unwrap_err();
            assert!(matches!(error, Error::Path { .. }), "{bad}: {error}");
        }
        assert!(Unit::parse(Some(&format!("a.slice:p:{}", "n".repeat(250))), "id").is_err());
        assert!(Unit::named("../x.scope").is_err());
    }
}
