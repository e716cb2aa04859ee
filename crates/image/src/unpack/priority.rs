/// Nice value with which a thread gets a tenth of the CPU time of a competing thread at the default of 0. The kernel
/// derives the I/O priority of a thread from it.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread until it ends: pulls are many and long, stops and probes short.
pub(crate) fn lower_priority() {
    // A failure does not prevent the unpacking.
    let _ = rustix::process::setpriority_process(None, NICE);
}
