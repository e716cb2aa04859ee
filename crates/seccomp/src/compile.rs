//! Compiles a policy to a filter:
//!
//! ```text
//! load the architecture; jump to its section; kill the process if the architecture is unknown
//! section:  load the number; binary search over ranges of numbers with the same verdict
//! leaf:     return the action, or load and compare arguments
//! ```
//!
//! The cost of a call is logarithmic in the number of ranges. Adjacent numbers with the same verdict are one range, so
//! the filter is short, and therefore fast to load.

use std::collections::HashMap;

use oci::Seccomp;

use crate::{
    Error, Program,
    arch::{Arch, X32_BIT},
    assemble::{Assembler, Target, Test},
    policy::{Clause, Policy, Section, Verdict},
    program::INSTRUCTIONS_MAX,
    rule::{Action, Condition, Op},
};

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Compiles a profile for the architecture of this machine. Has no side effects.
///
/// # Errors
/// A name that the runtime spec does not define, a value out of bounds, or a filter that exceeds the kernel's limit.
pub fn compile(profile: &Seccomp) -> Result<Program, Error> {
    compile_for(Arch::NATIVE, profile)
}

pub(crate) fn compile_for(native: Arch, profile: &Seccomp) -> Result<Program, Error> {
    let policy = Policy::parse(native, profile)?;
    let mut compiler = Compiler { policy: &policy, code: Assembler::default(), checks: HashMap::new() };
    let entry = compiler.architectures()?;
    let filter = compiler.code.finish(entry);
    let program = Program { filter, flags: policy.flags };
    match program.instructions() {
        n if n > INSTRUCTIONS_MAX => Err(Error::TooLong(n)),
        _ => Ok(program),
    }
}

struct Compiler<'a> {
    policy: &'a Policy,
    code: Assembler,
    /// Argument checks that were emitted, by clauses and by whether arguments have 64 bits.
    checks: HashMap<(&'a [Clause], bool), Target>,
}

/// The numbers from `start` up to the next range.
struct Range<'a> {
    start: u32,
    leaf: Leaf<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaf<'a> {
    Action(Action),
    Checked(&'a [Clause], bool),
}

impl<'a> Compiler<'a> {
    fn architectures(&mut self) -> Result<Target, Error> {
        let mut audits: Vec<u32> = self.policy.sections.iter().map(|section| section.arch.audit()).collect();
        audits.dedup();
        audits.sort_unstable();
        audits.dedup();
        // The native section is emitted last, so it comes first in the program, next to the jump to it.
        audits.sort_by_key(|audit| *audit == Arch::NATIVE.audit());
        let mut targets = Vec::new();
        for audit in audits {
            let ranges = self.ranges(audit);
            let search = self.search(&ranges)?;
            targets.push((audit, self.code.load(NUMBER, search)));
        }
        let mut next = Target::Return(Action::KILL_PROCESS);
        for (audit, target) in targets {
            next = self.code.branch(Test::Equal, audit, target, next);
        }
        Ok(self.code.load(ARCHITECTURE, next))
    }

    /// Returns the ranges over all numbers of one `AUDIT_ARCH_*` value; x32 has that of x86_64.
    fn ranges(&self, audit: u32) -> Vec<Range<'a>> {
        let mut ranges = Vec::new();
        let sections = self.policy.sections.iter().filter(|section| section.arch.audit() == audit);
        let (mut low, mut high) = (None, None);
        for section in sections {
            *(if section.arch == Arch::X32 { &mut high } else { &mut low }) = Some(section);
        }
        if let Some(section) = low {
            self.section_ranges(section, 0, &mut ranges);
        }
        match high {
            Some(section) => self.section_ranges(section, X32_BIT, &mut ranges),
            None if audit == Arch::X32.audit() => {
                // Numbers with the x32 bit belong to another architecture if x32 is not in the profile. -1 is a call
                // that a tracer skips.
                ranges.push(Range { start: X32_BIT, leaf: Leaf::Action(Action::KILL_PROCESS) });
                ranges.push(Range { start: u32::MAX, leaf: Leaf::Action(self.policy.default) });
            }
            None => {}
        }
        ranges.dedup_by(|next, previous| next.leaf == previous.leaf);
        ranges
    }

    fn section_ranges(&self, section: &'a Section, first: u32, ranges: &mut Vec<Range<'a>>) {
        let mut next = first;
        for (number, verdict) in &section.calls {
            if *number > next {
                self.gap(section, next, Some(*number), ranges);
            }
            let leaf = match verdict {
                Verdict::Always(action) => Leaf::Action(*action),
                Verdict::Checked(clauses) => Leaf::Checked(clauses, section.arch.has_wide_arguments()),
            };
            ranges.push(Range { start: *number, leaf });
            next = number + 1;
        }
        self.gap(section, next, None, ranges);
    }

    /// Appends the numbers from `next` up to but not including `end`, for which the policy has no rule.
    fn gap(&self, section: &Section, next: u32, end: Option<u32>, ranges: &mut Vec<Range<'a>>) {
        let newer = section.last.map(|last| last + 1);
        if newer.is_none_or(|newer| next < newer) {
            ranges.push(Range { start: next, leaf: Leaf::Action(self.policy.default) });
        }
        if let Some(newer) = newer
            && end.is_none_or(|end| newer < end)
        {
            ranges.push(Range { start: newer.max(next), leaf: Leaf::Action(self.policy.newer) });
        }
    }

    fn search(&mut self, ranges: &[Range<'a>]) -> Result<Target, Error> {
        if self.code.len() > INSTRUCTIONS_MAX {
            return Err(Error::TooLong(self.code.len()));
        }
        match ranges {
            [] => Ok(Target::Return(self.policy.default)),
            [one] => Ok(self.leaf(one.leaf)),
            _ => {
                let (left, right) = ranges.split_at(ranges.len() / 2);
                let start = right[0].start;
                let (right, left) = (self.search(right)?, self.search(left)?);
                Ok(self.code.branch(Test::GreaterEqual, start, right, left))
            }
        }
    }

    fn leaf(&mut self, leaf: Leaf<'a>) -> Target {
        let (clauses, wide) = match leaf {
            Leaf::Action(action) => return Target::Return(action),
            Leaf::Checked(clauses, wide) => (clauses, wide),
        };
        if let Some(target) = self.checks.get(&(clauses, wide)) {
            return *target;
        }
        let mut next = Target::Return(self.policy.default);
        for clause in clauses.iter().rev() {
            let mut matched = Target::Return(clause.action);
            for condition in clause.conditions.iter().rev() {
                matched = self.condition(condition, wide, matched, next);
            }
            next = matched;
        }
        self.checks.insert((clauses, wide), next);
        next
    }

    fn condition(&mut self, condition: &Condition, wide: bool, yes: Target, no: Target) -> Target {
        let (test, yes, no) = match condition.op {
            Op::Eq | Op::MaskedEq => return self.equal(condition, wide, yes, no),
            Op::Ne => return self.equal(condition, wide, no, yes),
            Op::Gt => (Test::Greater, yes, no),
            Op::Ge => (Test::GreaterEqual, yes, no),
            Op::Le => (Test::Greater, no, yes),
            Op::Lt => (Test::GreaterEqual, no, yes),
        };
        let (low, high) = halves(condition.value);
        let compare = self.code.branch(test, low, yes, no);
        let compare = self.code.load(low_half(condition.index), compare);
        if !wide {
            return compare;
        }
        // The lower halves are compared only if the upper ones are equal.
        let equal = self.code.branch(Test::Equal, high, compare, no);
        let above = self.code.branch(Test::Greater, high, yes, equal);
        self.code.load(high_half(condition.index), above)
    }

    fn equal(&mut self, condition: &Condition, wide: bool, yes: Target, no: Target) -> Target {
        let ((low, high), (mask_low, mask_high)) = (halves(condition.value), halves(condition.mask));
        let lower = self.equal_half(low_half(condition.index), low, mask_low, yes, no);
        if wide { self.equal_half(high_half(condition.index), high, mask_high, lower, no) } else { lower }
    }

    fn equal_half(&mut self, offset: u32, value: u32, mask: u32, yes: Target, no: Target) -> Target {
        // No bit of this half is compared, so the result is constant.
        if mask == 0 || yes == no {
            return if value == 0 { yes } else { no };
        }
        let mut test = self.code.branch(Test::Equal, value, yes, no);
        if mask != u32::MAX {
            test = self.code.and(mask);
        }
        self.code.load(offset, test)
    }
}

fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

fn low_half(index: u32) -> u32 {
    ARGUMENTS + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn high_half(index: u32) -> u32 {
    ARGUMENTS + 8 * index + if cfg!(target_endian = "big") { 0 } else { 4 }
}
