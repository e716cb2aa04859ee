//! Classic BPF as accepted by seccomp(2): the kernel's check (`seccomp_check_filter`, `bpf_check_classic`) and an
//! interpreter.

/// One `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    value: u32,
}

/// Input of a filter: the fields of `struct seccomp_data` except the instruction pointer.
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
    assert_eq!(filter.len() % 8, 0, "the filter does not end with a whole instruction");
    let parse = |b: &[u8]| Instruction {
        code: u16::from_ne_bytes([b[0], b[1]]),
        jump_true: b[2],
        jump_false: b[3],
        value: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
    };
    filter.chunks_exact(8).map(parse).collect()
}

/// A filter that the kernel would accept.
#[derive(Debug)]
pub(crate) struct Filter(Vec<Instruction>);

impl Filter {
    /// Parses a filter. Panics if the kernel would reject it with EINVAL.
    pub(crate) fn checked(bytes: &[u8]) -> Self {
        let all = instructions(bytes);
        assert!((1..=4096).contains(&all.len()), "{} instructions", all.len());
        for (at, instruction) in all.iter().enumerate() {
            let check_target = |step: u32| {
                let target = at as u64 + 1 + u64::from(step);
                assert!(target < all.len() as u64, "instruction {at} jumps beyond the end");
            };
            match instruction.code {
                LOAD => {
                    assert!(
                        instruction.value < 64 && instruction.value.is_multiple_of(4),
                        "instruction {at} loads offset {}",
                        instruction.value
                    )
                }
                JUMP => check_target(instruction.value),
                EQUAL | GREATER | AT_LEAST | BITS => {
                    check_target(u32::from(instruction.jump_true));
                    check_target(u32::from(instruction.jump_false));
                }
                AND | RETURN => {}
                other => panic!("instruction {at}: unexpected code {other:#x}"),
            }
        }
        assert_eq!(all.last().map(|last| last.code), Some(RETURN), "the last instruction must be a return");
        Self(all)
    }

    /// Runs the filter and returns its `SECCOMP_RET_*` value for a call.
    pub(crate) fn run(&self, call: &Call) -> u32 {
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let instruction = self.0[at];
            at += 1;
            let value = instruction.value;
            let jump =
                |condition: bool| usize::from(if condition { instruction.jump_true } else { instruction.jump_false });
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
    /// Returns the 32-bit word at an offset of `struct seccomp_data` on a little-endian machine.
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
