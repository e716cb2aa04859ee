//! Scheduling, I/O priority and NUMA policy: sched_setattr(2), ioprio_set(2), set_mempolicy(2).

use std::{fs, io, time::Duration};

/// The nice value of threads for which requests wait.
const REQUEST_NICE: i32 = -5;

/// `struct sched_attr` in its first version (Linux 3.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SchedulerAttributes {
    size: u32,
    /// `SCHED_*`
    pub policy: u32,
    /// `SCHED_FLAG_*`
    pub flags: u64,
    /// Nice value, for `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// Priority, for `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// Runtime of `SCHED_DEADLINE`, or slice of `SCHED_OTHER` (Linux 6.12), in ns.
    pub runtime: u64,
    /// Deadline of `SCHED_DEADLINE`, in ns.
    pub deadline: u64,
    /// Period of `SCHED_DEADLINE`, in ns.
    pub period: u64,
}

/// Sets policy and attributes of the calling thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or if the cgroup has no real-time budget; `EINVAL`: values that are invalid for the
/// policy; `EBUSY`: not enough bandwidth for the deadline.
pub fn set_scheduler(attributes: SchedulerAttributes) -> io::Result<()> {
    let attributes = SchedulerAttributes { size: size_of::<SchedulerAttributes>() as u32, ..attributes };
    // SAFETY: the struct has the kernel's layout, contains its size, and outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// Prioritizes the calling thread over others of its cgroup (sched(7)) by a negative nice value and a slice of 0.1 to
/// 100 ms (Linux 6.12; older kernels ignore it), whose early deadline lets it run soon after it wakes up. Threads and
/// processes that it starts have the default values (`SCHED_FLAG_RESET_ON_FORK`). A thread with another policy than
/// `SCHED_OTHER` or a nice value other than 0 is not changed: an administrator or an earlier call has set them.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn prioritize_thread(nice: i32, slice: Duration) -> io::Result<()> {
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

/// Prioritizes the calling thread with [`prioritize_thread`], for a thread for which requests wait: nice value -5 and a
/// slice of 1 ms. If the kernel refuses it, the thread is scheduled as any other.
pub fn prioritize_request_thread() {
    let _ = prioritize_thread(REQUEST_NICE, Duration::from_millis(1));
}

/// Runs bulk work with the default nice value on a thread of [`prioritize_request_thread`].
pub fn with_default_nice<T>(work: impl FnOnce() -> T) -> T {
    let before = rustix::process::getpriority_process(None);
    let is_changed = before == Ok(REQUEST_NICE) && rustix::process::setpriority_process(None, 0).is_ok();
    let result = work();
    if is_changed {
        let _ = rustix::process::setpriority_process(None, REQUEST_NICE);
    }
    result
}

/// Sets the nice value of the calling process's autogroup (sched(7)), if the process is the session leader. If its
/// cgroup is the root of the cpu controller, the session competes with other sessions and cgroups as a whole,
/// independently of the nice values in it.
///
/// # Errors
/// `ENOENT`: the kernel does not support autogroups; `EPERM` without `CAP_SYS_NICE`; `EAGAIN` without `CAP_SYS_ADMIN`
/// within 100 ms of a change of any autogroup.
pub fn set_autogroup_nice(nice: i32) -> io::Result<()> {
    if !leads_session() {
        return Ok(());
    }
    fs::write("/proc/self/autogroup", nice.to_string())
}

/// Reports whether the calling process is the session leader (getsid(2)). The leader may be in an outer PID namespace,
/// in which case the kernel returns 0, which rustix treats as a bug.
fn leads_session() -> bool {
    // SAFETY: both calls read no memory.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// The maximum number of CPUs that a kernel supports (`NR_CPUS` of x86_64 and aarch64 is at most 8192).
const CPUS_MAX: usize = 8192;

/// Lets the calling thread run on all CPUs of its current and future cpuset: affinity is inherited, and persists across
/// changes of the cgroup (Linux 6.2). The kernel limits the mask to the cpuset, and remembers the requested mask.
///
/// # Errors
/// `EPERM` or `ENOSYS` under a seccomp filter.
pub fn reset_cpu_affinity() -> io::Result<()> {
    let all = [u64::MAX; CPUS_MAX / 64];
    // SAFETY: the mask has the given size and outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&all), all.as_ptr()) })
}

/// Sets the I/O class (1 real-time, 2 best effort, 3 idle) and level (0, the highest, to 7) of the calling thread.
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

/// Sets the NUMA policy of the calling thread: `MPOL_*` with its flags, and one bit for each node.
///
/// # Errors
/// `EINVAL`: a mode or flags that the kernel does not support, or nodes that do not exist or are not allowed.
pub fn set_memory_policy(mode: i32, nodes: &[u64]) -> io::Result<()> {
    let mask = if nodes.is_empty() { std::ptr::null() } else { nodes.as_ptr() };
    // The kernel uses one bit less than specified (set_mempolicy(2), BUGS).
    let bits = if nodes.is_empty() { 0 } else { nodes.len() * 64 + 1 };
    // SAFETY: the mask has at least `bits - 1` bits and outlives the call; without nodes it is null.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
