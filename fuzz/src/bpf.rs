//! Classic BPF as seccomp(2) takes it: the kernel's check (`seccomp_check_filter`, `bpf_check_classic`) and its
//! meaning.

/// One `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

/// What a filter looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) architecture: u32,
    pub(crate) arguments: [u64; 6],
}

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const AT_LEAST: u16 = 0x35;
const BITS: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

fn instructions(filter: &[u8]) -> Vec<Instruction> {
    assert_eq!(filter.len() % 8, 0, "whole instructions");
    let one = |b: &[u8]| Instruction {
        code: u16::from_ne_bytes([b[0], b[1]]),
        yes: b[2],
        no: b[3],
        value: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
    };
    filter.chunks_exact(8).map(one).collect()
}

/// A filter that the kernel would take.
#[derive(Debug)]
pub(crate) struct Filter(Vec<Instruction>);

impl Filter {
    /// Panics where the kernel would say EINVAL.
    pub(crate) fn checked(bytes: &[u8]) -> Self {
        let all = instructions(bytes);
        assert!((1..=4096).contains(&all.len()), "{} instructions", all.len());
        for (at, instruction) in all.iter().enumerate() {
            let inside = |step: u32| assert!(at as u64 + 1 + u64::from(step) < all.len() as u64, "{at} jumps out");
            match instruction.code {
                LOAD => {
                    assert!(
                        instruction.value < 64 && instruction.value.is_multiple_of(4),
                        "{at} loads {}",
                        instruction.value
                    )
                }
                JUMP => inside(instruction.value),
                EQUAL | GREATER | AT_LEAST | BITS => {
                    inside(u32::from(instruction.yes));
                    inside(u32::from(instruction.no));
                }
                AND | RETURN => {}
                other => panic!("{at}: code {other:#x} is none that the compiler has reason to use"),
            }
        }
        assert_eq!(all.last().map(|last| last.code), Some(RETURN), "the last instruction returns");
        Self(all)
    }

    /// What it returns for a call.
    pub(crate) fn run(&self, call: &Call) -> u32 {
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let instruction = self.0[at];
            at += 1;
            let value = instruction.value;
            let jump = |holds: bool| usize::from(if holds { instruction.yes } else { instruction.no });
            match instruction.code {
                LOAD => accumulator = call.word(value),
                AND => accumulator &= value,
                JUMP => at += value as usize,
                EQUAL => at += jump(accumulator == value),
                GREATER => at += jump(accumulator > value),
                AT_LEAST => at += jump(accumulator >= value),
                BITS => at += jump(accumulator & value != 0),
                _ => return value,
            }
        }
    }
}

impl Call {
    /// A word of `struct seccomp_data`, by its offset; a little-endian machine.
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            8 | 12 => 0,
            _ => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
        }
    }
}
