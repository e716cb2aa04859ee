//! Classic BPF, assembled from its end: every jump goes forwards, so its target is known when it is written.

use std::collections::HashMap;

use crate::rule::Action;

const LD_ABS_W: u16 = 0x20;
const ALU_AND_K: u16 = 0x54;
const JMP_JA: u16 = 0x05;
const RET_K: u16 = 0x06;
/// Furthest target of a conditional jump, less what may be put between two of its preparations.
const REACH: usize = 250;

/// Tests of the accumulator against a constant.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Test {
    Equal = 0x15,
    Greater = 0x25,
    GreaterEqual = 0x35,
}

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Return this.
    Return(Action),
    /// An instruction: how many stand behind it.
    Label(usize),
}

#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// Instructions, the last first.
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

    /// How many instructions a jump written next would skip.
    fn distance(&self, label: usize) -> usize {
        self.reversed.len() - label - 1
    }

    /// An instruction within reach that leads there. A return is repeated rather than jumped to from afar.
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

    /// `if accumulator <test> k { yes } else { no }`.
    pub(crate) fn branch(&mut self, test: Test, k: u32, yes: Target, no: Target) -> Target {
        if yes == no {
            return yes;
        }
        let (yes, no) = (self.reach(yes), self.reach(no));
        let (jt, jf) = (self.distance(yes) as u8, self.distance(no) as u8);
        self.reversed.push(Instruction { code: test as u16, jt, jf, k });
        Target::Label(self.reversed.len() - 1)
    }

    /// Puts `accumulator &= mask` before the instruction just written.
    pub(crate) fn and(&mut self, mask: u32) -> Target {
        Target::Label(self.push(ALU_AND_K, mask))
    }

    /// Puts the load of a word of `struct seccomp_data` before what stands at `next`.
    pub(crate) fn load(&mut self, offset: u32, next: Target) -> Target {
        // Execution falls through to what was written last.
        let fall = self.reversed.len().checked_sub(1).map(Target::Label);
        match next {
            Target::Return(_) => return next,
            Target::Label(label) if Some(next) != fall => {
                let skip = self.distance(label) as u32;
                self.push(JMP_JA, skip);
            }
            Target::Label(_) => {}
        }
        Target::Label(self.push(LD_ABS_W, offset))
    }

    /// How many instructions there are so far.
    pub(crate) fn len(&self) -> usize {
        self.reversed.len()
    }

    /// The program that begins at `entry`, as `struct sock_filter[]`.
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
