//! A profile resolved: for each architecture, what happens to which number.

use std::collections::BTreeMap;

use oci::{Seccomp, SyscallRule};

use crate::{
    Error,
    arch::{self, Arch, Call},
    rule::{self, Action, Condition, Op},
};

/// All conditions hold: the action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clause {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) action: Action,
}

/// What happens to one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Always(Action),
    /// The first clause that holds, else the default.
    Checked(Vec<Clause>),
}

/// One architecture's calls.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) arch: Arch,
    pub(crate) calls: BTreeMap<u32, Verdict>,
    /// The largest number the profile names; what is beyond is newer than the profile.
    pub(crate) last: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) default: Action,
    pub(crate) sections: Vec<Section>,
    /// What happens to calls newer than the profile.
    pub(crate) newer: Action,
    pub(crate) flags: u32,
}

impl Policy {
    pub(crate) fn parse(native: Arch, profile: &Seccomp) -> Result<Self, Error> {
        let default =
            Action::parse(["defaultAction", "defaultErrnoRet"], &profile.default_action, profile.default_errno_ret)?;
        let section = |arch| Section { arch, calls: BTreeMap::new(), last: None };
        let mut policy = Self {
            default,
            sections: architectures(native, profile)?.into_iter().map(section).collect(),
            // A program that asks for a call its kernel does not have falls back; one that is told EPERM gives up.
            newer: if default.permits() { default } else { Action::ENOSYS },
            flags: rule::flags(profile)?,
        };
        let mut notifies = default.is_notify();
        for (index, rule) in profile.syscalls.iter().enumerate() {
            notifies |= policy.add(rule).map_err(|error| error.of_rule(index, &rule.names))?;
        }
        policy.flags = rule::notify_flags(policy.flags, notifies)?;
        Ok(policy)
    }

    /// Whether the rule notifies.
    fn add(&mut self, rule: &SyscallRule) -> Result<bool, Error> {
        let action = Action::parse(["action", "errnoRet"], &rule.action, rule.errno_ret)?;
        let conditions =
            rule.args.iter().enumerate().map(|(at, arg)| Condition::parse(at, arg)).collect::<Result<Vec<_>, _>>()?;
        let alternatives = alternatives(conditions);
        for name in &rule.names {
            if name.is_empty() {
                return Err(Error::Invalid { field: "names".into(), reason: "a name is empty".into() });
            }
            // Names that no architecture here has are ignored: profiles name the calls of all architectures and
            // kernels.
            let Some(call) = Call::named(name) else { continue };
            for section in &mut self.sections {
                section.add(call, action, &alternatives, self.default);
            }
        }
        Ok(action.is_notify() && !rule.names.is_empty())
    }
}

/// The native one and those named that its kernel can run.
fn architectures(native: Arch, profile: &Seccomp) -> Result<Vec<Arch>, Error> {
    let mut named = vec![native];
    for name in &profile.architectures {
        named.extend(arch::parse(name)?.filter(|arch| native.family().contains(arch)));
    }
    named.sort_unstable();
    named.dedup();
    Ok(named)
}

/// All conditions of a rule must hold; but two on the same argument make every condition a rule of its own. Odd, and
/// what profiles in the field are written for (runc and crun do so for the sake of old libseccomp).
fn alternatives(conditions: Vec<Condition>) -> Vec<Vec<Condition>> {
    let mut seen = [0u8; 6];
    for condition in &conditions {
        seen[condition.index as usize] = seen[condition.index as usize].saturating_add(1);
    }
    if seen.iter().any(|count| *count > 1) {
        conditions.into_iter().map(|condition| vec![condition]).collect()
    } else {
        vec![conditions]
    }
}

impl Section {
    /// A call that this architecture does not have is ignored.
    fn add(&mut self, call: Call, action: Action, alternatives: &[Vec<Condition>], default: Action) {
        let number = self.arch.number(call);
        self.last = self.last.max(number.filter(|number| self.arch != Arch::Arm || *number < arch::ARM_OWN));
        if action == default {
            return;
        }
        if let Some(number) = number {
            for conditions in alternatives {
                self.put(number, conditions, action);
            }
        }
        if self.arch == Arch::X86
            && let Some((through, argument)) = call.multiplexed()
            && let Some(number) = self.arch.number(through)
        {
            // The arguments are behind a pointer there. A rule that permits some of them must not permit all; one that
            // forbids some forbids all.
            let unconditional = alternatives.iter().any(Vec::is_empty);
            if unconditional || !action.permits() || default.permits() {
                let mask = if through.has_version() { 0xffff } else { u64::MAX };
                let condition = Condition { index: 0, op: Op::MaskedEq, value: u64::from(argument), mask };
                self.put(number, &[condition], action);
            }
        }
    }

    /// A rule without conditions wins over all with conditions; of two such the first stands.
    fn put(&mut self, number: u32, conditions: &[Condition], action: Action) {
        let verdict = self.calls.entry(number).or_insert_with(|| Verdict::Checked(Vec::new()));
        match verdict {
            Verdict::Always(_) => {}
            other if conditions.is_empty() => *other = Verdict::Always(action),
            Verdict::Checked(clauses) => clauses.push(Clause { conditions: conditions.to_vec(), action }),
        }
    }
}
