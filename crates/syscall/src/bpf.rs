//! bpf(2) for device programs of cgroup v2 (Linux 4.15, including several programs per cgroup; needs CAP_BPF or
//! CAP_SYS_ADMIN).

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
/// The maximum number of programs per cgroup (the limit of the kernel).
const PROGRAMS_MAX: usize = 64;

/// An instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Jump or memory offset.
    pub off: i16,
    /// Immediate constant.
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

/// The head of `union bpf_attr` for BPF_PROG_LOAD.
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

/// The head of `union bpf_attr` for BPF_PROG_ATTACH and BPF_PROG_DETACH.
#[repr(C)]
#[derive(Default)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// The head of `union bpf_attr` for BPF_PROG_QUERY.
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

/// The head of `union bpf_attr` for BPF_PROG_GET_FD_BY_ID.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

fn bpf<T>(command: libc::c_long, attributes: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: `attributes` is a live, writable repr(C) head of union bpf_attr, and its true size is given; the kernel
    // treats the rest as zero. The pointers in it refer to buffers that the caller keeps alive during the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn into_owned_fd(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it. (bpf descriptors are
    // close-on-exec.)
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Loads a program of type `BPF_PROG_TYPE_CGROUP_DEVICE`.
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
    bpf(BPF_PROG_LOAD, &mut load).map(into_owned_fd)
}

/// Attaches a program to a cgroup directory, in addition to the attached ones: all programs must allow an access.
pub fn attach_device_program(group: impl AsFd, program: impl AsFd) -> Result<(), Errno> {
    let mut attach = attributes(&group, &program);
    attach.flags = BPF_F_ALLOW_MULTI;
    bpf(BPF_PROG_ATTACH, &mut attach).map(drop)
}

/// Detaches a program from a cgroup directory.
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

/// Returns the device programs that are attached to this cgroup itself.
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
    ids.iter()
        .map(|id| bpf(BPF_PROG_GET_FD_BY_ID, &mut ById { id: *id, ..ById::default() }).map(into_owned_fd))
        .collect()
}
