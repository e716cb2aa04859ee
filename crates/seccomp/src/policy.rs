//! Resolves a profile to the verdicts for the numbers of each architecture.

use std::collections::BTreeMap;

use oci::{Seccomp, SyscallRule};

use crate::{
    Error,
    arch::{self, Arch, Call},
    rule::{self, Action, Condition, Op},
};

/// An action that applies if all conditions match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clause {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) action: Action,
}

/// The verdict for one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Always(Action),
    /// The action of the first clause that matches, else the default.
    Checked(Vec<Clause>),
}

/// The calls of one architecture.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) arch: Arch,
    pub(crate) calls: BTreeMap<u32, Verdict>,
    /// The largest number in the profile; calls with larger numbers are newer than the profile.
    pub(crate) last: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) default: Action,
    pub(crate) sections: Vec<Section>,
    /// The action for calls newer than the profile.
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
            // Programs fall back to older calls after ENOSYS, but not after EPERM.
            newer: if default.permits() { default } else { Action::ENOSYS },
            flags: rule::flags(profile)?,
        };
        let mut notifies = default.is_notify();
        for (index, rule) in profile.syscalls.iter().enumerate() {
            notifies |= policy.add(rule).map_err(|error| error.in_rule(index, &rule.names))?;
        }
        policy.flags = rule::notify_flags(policy.flags, notifies)?;
        Ok(policy)
    }

    /// Adds a rule. Returns whether it notifies.
    fn add(&mut self, rule: &SyscallRule) -> Result<bool, Error> {
        let action = Action::parse(["action", "errnoRet"], &rule.action, rule.errno_ret)?;
        let conditions =
            rule.args.iter().enumerate().map(|(at, arg)| Condition::parse(at, arg)).collect::<Result<Vec<_>, _>>()?;
        let alternatives = alternatives(conditions);
        for name in &rule.names {
            if name.is_empty() {
                return Err(Error::Invalid { field: "names".into(), reason: "a name is empty".into() });
            }
            // Profiles contain the calls of all architectures and kernels, so unknown names are ignored.
            let Some(call) = Call::from_name(name) else { continue };
            for section in &mut self.sections {
                section.add(call, action, &alternatives, self.default);
            }
        }
        Ok(action.is_notify() && !rule.names.is_empty())
    }
}

/// Returns the native architecture and those of the profile that its kernel can run.
fn architectures(native: Arch, profile: &Seccomp) -> Result<Vec<Arch>, Error> {
    let mut named = vec![native];
    for name in &profile.architectures {
        named.extend(arch::parse(name)?.filter(|arch| native.family().contains(arch)));
    }
    named.sort_unstable();
    named.dedup();
    Ok(named)
}

/// Returns the alternatives of a rule. All conditions of a rule must match, but if two are on the same argument, every
/// condition is an alternative. Existing profiles depend on this (runc and crun do it because of old libseccomp).
fn alternatives(conditions: Vec<Condition>) -> Vec<Vec<Condition>> {
    let mut counts = [0u8; 6];
    for condition in &conditions {
        counts[condition.index as usize] = counts[condition.index as usize].saturating_add(1);
    }
    if counts.iter().any(|count| *count > 1) {
        conditions.into_iter().map(|condition| vec![condition]).collect()
    } else {
        vec![conditions]
    }
}

impl Section {
    /// Adds a call. A call that this architecture does not have is ignored.
    fn add(&mut self, call: Call, action: Action, alternatives: &[Vec<Condition>], default: Action) {
        let number = self.arch.number(call);
        self.last = self.last.max(number.filter(|number| self.arch != Arch::Arm || *number < arch::ARM_PRIVATE));
        if action == default {
            return;
        }
        if let Some(number) = number {
            for conditions in alternatives {
                self.put(number, conditions, action);
            }
        }
        if self.arch == Arch::X86
            && let Some((multiplexer, argument)) = call.multiplexed()
            && let Some(number) = self.arch.number(multiplexer)
        {
            // The arguments of the multiplexed call are behind a pointer. A rule that permits some arguments must not
            // permit all; one that forbids some forbids all.
            let unconditional = alternatives.iter().any(Vec::is_empty);
            if unconditional || !action.permits() || default.permits() {
                let mask = if multiplexer.has_version() { 0xffff } else { u64::MAX };
                let condition = Condition { index: 0, op: Op::MaskedEq, value: u64::from(argument), mask };
                self.put(number, &[condition], action);
            }
        }
    }

    /// Adds an action. A rule without conditions takes precedence over all with conditions; of two such rules the
    /// first.
    fn put(&mut self, number: u32, conditions: &[Condition], action: Action) {
        let verdict = self.calls.entry(number).or_insert_with(|| Verdict::Checked(Vec::new()));
        match verdict {
            Verdict::Always(_) => {}
            other if conditions.is_empty() => *other = Verdict::Always(action),
            Verdict::Checked(clauses) => clauses.push(Clause { conditions: conditions.to_vec(), action }),
        }
    }
}
