/// Above the usual 0: this thread gets a tenth of the time of one that wants it, too. The kernel derives the priority
/// of a thread's I/O from it.
const NICE: i32 = 10;

/// Lets everybody else go first, for as long as this thread lives: pulls are many and long, stops and probes short.
pub(crate) fn step_back() {
    // Where it is refused, the layer is unpacked all the same.
    let _ = rustix::process::setpriority_process(None, NICE);
}
