//! How a process is scheduled, and where its memory comes from: sched_setattr(2), ioprio_set(2), set_mempolicy(2).

use std::{fs, io, time::Duration};

/// Nice value of threads that requests wait for.
const SERVES_REQUESTS: i32 = -5;

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
    /// Nanoseconds, of `SCHED_DEADLINE`; of `SCHED_OTHER` the slice (Linux 6.12).
    pub runtime: u64,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub deadline: u64,
    /// Nanoseconds, of `SCHED_DEADLINE`.
    pub period: u64,
}

/// Sets policy and attributes of the calling thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or where the cgroup has no real-time budget; `EINVAL`: values that do not fit the
/// policy; `EBUSY`: no bandwidth for the deadline.
pub fn set_scheduler(attributes: SchedulerAttributes) -> io::Result<()> {
    let attributes = SchedulerAttributes { size: size_of::<SchedulerAttributes>() as u32, ..attributes };
    // SAFETY: the struct is that of the kernel, its size is in it, and it outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// Lets the calling thread run before others of its cgroup, sched(7): a nice value below 0, and a slice this long, 0.1
/// to 100 ms (Linux 6.12; older kernels ignore it), whose early deadline has it run soon after it wakes up. Threads and
/// processes that it starts have the default values (`SCHED_FLAG_RESET_ON_FORK`). A thread with another policy than
/// `SCHED_OTHER` or a nice value other than 0 keeps them: an administrator or an earlier call set them.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn run_before_others(nice: i32, slice: Duration) -> io::Result<()> {
    // SAFETY: the call reads no memory.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    if policy != libc::SCHED_OTHER || rustix::process::getpriority_process(None)? != 0 {
        return Ok(());
    }
    set_scheduler(SchedulerAttributes {
        policy: libc::SCHED_OTHER as u32,
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice,
        runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        ..SchedulerAttributes::default()
    })
}

/// Lets the calling thread run before others as [`run_before_others`] does, for a thread that requests wait for: nice
/// value -5 and a slice of 1 ms. Where it is refused the thread is scheduled as any other.
pub fn serve_requests() {
    let _ = run_before_others(SERVES_REQUESTS, Duration::from_millis(1));
}

/// Runs bulk work on a thread of [`serve_requests`] with the default nice value.
pub fn run_as_others<T>(work: impl FnOnce() -> T) -> T {
    let before = rustix::process::getpriority_process(None);
    let is_lowered = before == Ok(SERVES_REQUESTS) && rustix::process::setpriority_process(None, 0).is_ok();
    let result = work();
    if is_lowered {
        let _ = rustix::process::setpriority_process(None, SERVES_REQUESTS);
    }
    result
}

/// Sets the nice value of the calling process's autogroup, sched(7), if the process leads its session: where its cgroup
/// is the root of the cpu controller, the session competes with other sessions and cgroups as one, whatever the nice
/// values in it.
///
/// # Errors
/// `ENOENT`: the kernel has no autogroups; `EPERM` without `CAP_SYS_NICE`; `EAGAIN` without `CAP_SYS_ADMIN` within 100
/// ms of a change of any autogroup.
pub fn set_autogroup_nice(nice: i32) -> io::Result<()> {
    if !leads_session() {
        return Ok(());
    }
    fs::write("/proc/self/autogroup", nice.to_string())
}

/// Whether the calling process leads its session, getsid(2). The leader may be in a PID namespace outside, where it has
/// no number here: rustix takes the kernel's 0 for a bug.
fn leads_session() -> bool {
    // SAFETY: both calls read no memory.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Most CPUs that a kernel is built for (`NR_CPUS` of x86_64 and aarch64 is 8192 at most).
const CPUS_MAX: usize = 8192;

/// Lets the calling thread run on every CPU that its cpuset has, now and later: its affinity is inherited, and outlasts
/// a change of cgroup (Linux 6.2). The kernel takes out of the mask what the cpuset lacks, and remembers the rest.
///
/// # Errors
/// `EPERM` or `ENOSYS` under a seccomp filter.
pub fn reset_cpu_affinity() -> io::Result<()> {
    let all = [u64::MAX; CPUS_MAX / 64];
    // SAFETY: the mask has as many bytes as the call is given, and outlives it.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&all), all.as_ptr()) })
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
