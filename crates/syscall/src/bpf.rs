//! bpf(2), for the device filters of cgroup v2 (kernel 4.15+; several per group 4.15+; needs CAP_BPF or CAP_SYS_ADMIN).

use rustix::{
    fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    io::Errno,
};

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_PROG_DETACH: libc::c_long = 9;
const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;
/// Programs of one group that are looked at (the kernel's own limit is 64).
const PROGRAMS_MAX: usize = 64;

/// One instruction, `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Jump or memory offset.
    pub off: i16,
    /// Constant.
    pub imm: i32,
}

impl Instruction {
    fn encode(self) -> u64 {
        let [o0, o1] = self.off.to_ne_bytes();
        let [i0, i1, i2, i3] = self.imm.to_ne_bytes();
        let registers =
            if cfg!(target_endian = "little") { self.src << 4 | self.dst } else { self.dst << 4 | self.src };
        u64::from_ne_bytes([self.code, registers, o0, o1, i0, i1, i2, i3])
    }
}

/// Head of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// For BPF_PROG_ATTACH and BPF_PROG_DETACH.
#[repr(C)]
#[derive(Default)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// For BPF_PROG_QUERY.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    kind: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

/// For BPF_PROG_GET_FD_BY_ID.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

fn bpf<T>(command: libc::c_long, attributes: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: `attributes` is a live, writable repr(C) head of union bpf_attr, and the size given is its own; the
    // kernel takes what is beyond as zero. The pointers in it refer to buffers that its creator keeps alive during the
    // call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn own(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel just returned this descriptor to us and nobody else knows it. (bpf descriptors are
    // close-on-exec.)
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Loads a program that decides on device access.
pub fn load_device_program(instructions: &[Instruction]) -> Result<OwnedFd, Errno> {
    let code: Vec<u64> = instructions.iter().map(|instruction| instruction.encode()).collect();
    let mut load = Load {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        name: *b"pinion_devices\0\0",
        ..Load::default()
    };
    bpf(BPF_PROG_LOAD, &mut load).map(own)
}

/// Attaches a program to a group's directory, beside what is attached already: all must allow an access.
pub fn attach_device_program(group: impl AsFd, program: impl AsFd) -> Result<(), Errno> {
    let mut attach = attributes(&group, &program);
    attach.flags = BPF_F_ALLOW_MULTI;
    bpf(BPF_PROG_ATTACH, &mut attach).map(drop)
}

/// Detaches a program from a group's directory.
pub fn detach_device_program(group: impl AsFd, program: impl AsFd) -> Result<(), Errno> {
    bpf(BPF_PROG_DETACH, &mut attributes(&group, &program)).map(drop)
}

fn attributes(group: &impl AsFd, program: &impl AsFd) -> Attach {
    Attach {
        target: group.as_fd().as_raw_fd() as u32,
        program: program.as_fd().as_raw_fd() as u32,
        kind: BPF_CGROUP_DEVICE,
        flags: 0,
    }
}

/// The device programs that are attached to this very group.
pub fn device_programs(group: impl AsFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut ids = [0u32; PROGRAMS_MAX];
    let mut query = Query {
        target: group.as_fd().as_raw_fd() as u32,
        kind: BPF_CGROUP_DEVICE,
        ids: ids.as_mut_ptr() as u64,
        count: PROGRAMS_MAX as u32,
        ..Query::default()
    };
    bpf(BPF_PROG_QUERY, &mut query)?;
    let ids = &ids[..(query.count as usize).min(PROGRAMS_MAX)];
    ids.iter().map(|id| bpf(BPF_PROG_GET_FD_BY_ID, &mut ById { id: *id, ..ById::default() }).map(own)).collect()
}
