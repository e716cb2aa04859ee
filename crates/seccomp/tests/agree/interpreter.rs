//! An interpreter of classic BPF over `struct seccomp_data`, as strict as the kernel's verifier.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) arch: u32,
    pub(crate) number: u32,
    pub(crate) args: [u64; 6],
}

impl Call {
    pub(crate) const X86_64: u32 = 0xc000_003e;
    pub(crate) const X86: u32 = 0x4000_0003;
    pub(crate) const AARCH64: u32 = 0xc000_00b7;

    fn load(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            16..64 if offset.is_multiple_of(8) => self.args[(offset as usize - 16) / 8] as u32,
            16..64 if offset.is_multiple_of(4) => (self.args[(offset as usize - 16) / 8] >> 32) as u32,
            other => panic!("load from {other}"),
        }
    }
}

/// Runs a filter and returns its result.
pub(crate) fn run(filter: &[u8], call: &Call) -> u32 {
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let i: &[u8; 8] = filter[at * 8..at * 8 + 8].try_into().expect("an instruction");
        let (code, k) = (u16::from_ne_bytes([i[0], i[1]]), u32::from_ne_bytes([i[4], i[5], i[6], i[7]]));
        let jump = |holds: bool| usize::from(if holds { i[2] } else { i[3] });
        at += 1;
        match code {
            0x20 => accumulator = call.load(k),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x45 => at += jump(accumulator & k != 0),
            0x06 => return k,
            other => panic!("instruction {other:#x} at {}", at - 1),
        }
    }
}
