//! Assembles classic BPF from the end: all jumps go forward, so their targets are known when they are emitted.

use std::collections::HashMap;

use crate::rule::Action;

const LD_ABS_W: u16 = 0x20;
const ALU_AND_K: u16 = 0x54;
const JMP_JA: u16 = 0x05;
const RET_K: u16 = 0x06;
/// The longest conditional jump, minus the instructions that may be inserted while its two targets are prepared.
const REACH: usize = 250;

/// A comparison of the accumulator with a constant.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Test {
    Equal = 0x15,
    Greater = 0x25,
    GreaterEqual = 0x35,
}

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Returns this action.
    Return(Action),
    /// An instruction, by the number of instructions after it.
    Label(usize),
}

#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// A program under construction; the last instruction comes first.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    reversed: Vec<Instruction>,
    returns: HashMap<Action, usize>,
}

impl Assembler {
    fn push(&mut self, code: u16, k: u32) -> usize {
        self.reversed.push(Instruction { code, jt: 0, jf: 0, k });
        self.reversed.len() - 1
    }

    /// Returns how many instructions a jump that is emitted next would skip.
    fn distance(&self, label: usize) -> usize {
        self.reversed.len() - label - 1
    }

    /// Returns an instruction within the reach of a conditional jump that leads to the target. A distant return is
    /// repeated instead of reached by a jump.
    fn reach(&mut self, target: Target) -> usize {
        match target {
            Target::Label(label) if self.distance(label) <= REACH => label,
            Target::Label(label) => {
                let skip = self.distance(label) as u32;
                self.push(JMP_JA, skip)
            }
            Target::Return(action) => match self.returns.get(&action) {
                Some(label) if self.distance(*label) <= REACH => *label,
                _ => {
                    let label = self.push(RET_K, action.0);
                    self.returns.insert(action, label);
                    label
                }
            },
        }
    }

    /// Emits `if accumulator <test> k { yes } else { no }`.
    pub(crate) fn branch(&mut self, test: Test, k: u32, yes: Target, no: Target) -> Target {
        if yes == no {
            return yes;
        }
        let (yes, no) = (self.reach(yes), self.reach(no));
        let (jt, jf) = (self.distance(yes) as u8, self.distance(no) as u8);
        self.reversed.push(Instruction { code: test as u16, jt, jf, k });
        Target::Label(self.reversed.len() - 1)
    }

    /// Inserts `accumulator &= mask` before the last emitted instruction.
    pub(crate) fn and(&mut self, mask: u32) -> Target {
        Target::Label(self.push(ALU_AND_K, mask))
    }

    /// Inserts the load of a word of `struct seccomp_data` before `next`.
    pub(crate) fn load(&mut self, offset: u32, next: Target) -> Target {
        // Execution falls through to the instruction that was emitted last.
        let fallthrough = self.reversed.len().checked_sub(1).map(Target::Label);
        match next {
            Target::Return(_) => return next,
            Target::Label(label) if Some(next) != fallthrough => {
                let skip = self.distance(label) as u32;
                self.push(JMP_JA, skip);
            }
            Target::Label(_) => {}
        }
        Target::Label(self.push(LD_ABS_W, offset))
    }

    /// Returns the number of instructions so far.
    pub(crate) fn len(&self) -> usize {
        self.reversed.len()
    }

    /// Returns the program with this entry point as an array of `struct sock_filter`.
    pub(crate) fn finish(mut self, entry: Target) -> Vec<u8> {
        if Target::Label(self.reversed.len().wrapping_sub(1)) != entry {
            match entry {
                Target::Label(label) => {
                    let skip = self.distance(label) as u32;
                    self.push(JMP_JA, skip)
                }
                Target::Return(action) => self.push(RET_K, action.0),
            };
        }
        let bytes = |i: &Instruction| {
            let ([c0, c1], [k0, k1, k2, k3]) = (i.code.to_ne_bytes(), i.k.to_ne_bytes());
            [c0, c1, i.jt, i.jf, k0, k1, k2, k3]
        };
        self.reversed.iter().rev().flat_map(bytes).collect()
    }
}
