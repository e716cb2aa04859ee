//! How a process is scheduled, and where its memory comes from: sched_setattr(2), ioprio_set(2), set_mempolicy(2).

use std::io;

/// `struct sched_attr`, its first version (Linux 3.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SchedulerAttributes {
    size: u32,
    /// `SCHED_*`
    pub policy: u32,
    /// `SCHED_FLAG_*`
    pub flags: u64,
    /// Of `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// Of `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub runtime: u64,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub deadline: u64,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub period: u64,
}

/// Sets policy and attributes of the calling thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or where the cgroup has no real-time budget; `EINVAL`: values that do not fit the policy;
/// `EBUSY`: no bandwidth for the deadline.
pub fn set_scheduler(attributes: SchedulerAttributes) -> io::Result<()> {
    let attributes = SchedulerAttributes { size: size_of::<SchedulerAttributes>() as u32, ..attributes };
    // SAFETY: the struct is that of the kernel, its size is in it, and it outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// Sets I/O class (1 real-time, 2 best effort, 3 idle) and level (0, the highest, to 7) of the calling thread.
///
/// # Errors
/// `EPERM`: the real-time class without `CAP_SYS_ADMIN` or `CAP_SYS_NICE`; `EINVAL`.
pub fn set_io_priority(class: u8, level: u8) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    let value = libc::c_int::from(class) << CLASS_SHIFT | libc::c_int::from(level);
    // SAFETY: the call reads no memory.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) })
}

/// Sets the NUMA policy of the calling thread: `MPOL_*` with its flags, and a bit for each node.
///
/// # Errors
/// `EINVAL`: a mode or flags that the kernel does not know, or nodes that are not there or not allowed.
pub fn set_memory_policy(mode: i32, nodes: &[u64]) -> io::Result<()> {
    let mask = if nodes.is_empty() { std::ptr::null() } else { nodes.as_ptr() };
    // The kernel takes one bit less than it is told of (set_mempolicy(2), BUGS).
    let bits = if nodes.is_empty() { 0 } else { nodes.len() * 64 + 1 };
    // SAFETY: the mask has at least `bits - 1` bits and outlives the call; without nodes there is none.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) })
}

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
