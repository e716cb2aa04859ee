//! Compiles a device policy to a BPF program: v2 has no files for devices (`BPF_PROG_TYPE_CGROUP_DEVICE`, Linux 4.15).
//!
//! ```text
//! r2 = type, r3 = access, r4 = major, r5 = minor
//! for each exception:  if it matches, return the opposite of the default
//! return the default
//! ```

use std::os::fd::OwnedFd;

use syscall::bpf::{self, Instruction};

use crate::{
    Error, GroupPath,
    devices::{Access, DevicePolicy, Exception, Kind},
    tree::Tree,
};

const LDX_W: u8 = 0x61;
const MOV_IMM: u8 = 0xb7;
const MOV_REG: u8 = 0xbf;
const AND_IMM: u8 = 0x57;
const RSH_IMM: u8 = 0x77;
const JEQ_IMM: u8 = 0x15;
const JNE_IMM: u8 = 0x55;
const EXIT: u8 = 0x95;

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Instruction {
    Instruction { code, dst, src, off, imm }
}

impl DevicePolicy {
    /// Compiles the policy.
    pub(crate) fn program(&self) -> Vec<Instruction> {
        let mut code = vec![
            insn(LDX_W, 2, 1, 0, 0),
            insn(MOV_REG, 3, 2, 0, 0),
            insn(AND_IMM, 2, 0, 0, 0xffff),
            insn(RSH_IMM, 3, 0, 0, 16),
            insn(LDX_W, 4, 1, 4, 0),
            insn(LDX_W, 5, 1, 8, 0),
        ];
        for exception in &self.exceptions {
            let block = self.exception(exception);
            code.extend(block);
        }
        code.extend([insn(MOV_IMM, 0, 0, 0, i32::from(self.allow)), insn(EXIT, 0, 0, 0, 0)]);
        code
    }

    fn exception(&self, exception: &Exception) -> Vec<Instruction> {
        let kind = if exception.kind == Kind::Block { 1 } else { 2 };
        let access = i32::from(exception.access.0);
        // The offsets of the conditional jumps are set below, once the length of the block is known.
        let mut block = vec![insn(JNE_IMM, 2, 0, 0, kind)];
        if exception.access != Access::ALL {
            block.push(insn(MOV_REG, 1, 3, 0, 0));
            // A request is allowed if every access bit is allowed, and denied if any bit is denied.
            if self.allow {
                block.extend([insn(AND_IMM, 1, 0, 0, access), insn(JEQ_IMM, 1, 0, 0, 0)]);
            } else {
                block.extend([insn(AND_IMM, 1, 0, 0, 7 & !access), insn(JNE_IMM, 1, 0, 0, 0)]);
            }
        }
        let number = |register: u8, n: u32| insn(JNE_IMM, register, 0, 0, n as i32);
        block.extend(exception.major.map(|major| number(4, major)));
        block.extend(exception.minor.map(|minor| number(5, minor)));
        block.extend([insn(MOV_IMM, 0, 0, 0, i32::from(!self.allow)), insn(EXIT, 0, 0, 0, 0)]);
        let length = block.len();
        for (at, instruction) in block.iter_mut().enumerate() {
            if matches!(instruction.code, JNE_IMM | JEQ_IMM) {
                instruction.off = (length - at - 1) as i16;
            }
        }
        block
    }

    /// Attaches the program to the group, replacing those that are attached.
    pub(crate) fn attach(&self, tree: &Tree, group: &GroupPath) -> Result<(), Error> {
        let failed = |operation: &'static str| {
            move |e: rustix::io::Errno| Error::io(operation, tree.describe(group.relative()), e)
        };
        let dir = tree.open_dir(group.relative()).map_err(failed("open"))?;
        let old: Vec<OwnedFd> = bpf::device_programs(&dir).map_err(failed("bpf(BPF_PROG_QUERY) of"))?;
        let program =
            bpf::load_device_program(&self.program()).map_err(failed("bpf(BPF_PROG_LOAD) of a device filter for"))?;
        bpf::attach_device_program(&dir, &program).map_err(failed("bpf(BPF_PROG_ATTACH) of a device filter to"))?;
        // An access needs the consent of all attached programs. Therefore the old ones are detached last: at no time
        // more is allowed than before or after.
        for program in old {
            bpf::detach_device_program(&dir, &program).map_err(failed("bpf(BPF_PROG_DETACH) from"))?;
        }
        Ok(())
    }
}
