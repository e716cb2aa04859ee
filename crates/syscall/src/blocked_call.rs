//! System calls in which threads of other processes are blocked (`/proc/<pid>/task/<tid>/syscall`, proc(5)).

/// The number of a system call that works on pipes, and the positions of its arguments that are descriptors.
type Call = (libc::c_long, &'static [usize]);

const CALLS: [Call; 13] = [
    (libc::SYS_read, &[0]),
    (libc::SYS_readv, &[0]),
    (libc::SYS_preadv, &[0]),
    (libc::SYS_preadv2, &[0]),
    (libc::SYS_write, &[0]),
    (libc::SYS_writev, &[0]),
    (libc::SYS_pwritev, &[0]),
    (libc::SYS_pwritev2, &[0]),
    (libc::SYS_splice, &[0, 2]),
    (libc::SYS_tee, &[0, 1]),
    (libc::SYS_vmsplice, &[0]),
    (libc::SYS_sendfile, &[0, 1]),
    (libc::SYS_copy_file_range, &[0, 2]),
];
/// Calls that move data between files in the kernel, or that execute other calls.
const MOVING: [libc::c_long; 7] = [
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_io_submit,
    libc::SYS_io_uring_enter,
];

/// The numbers of these calls in 32-bit programs. Native calls with these numbers do not work on pipes, except
/// close(2).
#[cfg(target_arch = "x86_64")]
const CALLS_32: [Call; 11] = [
    (3, &[0]),
    (4, &[0]),
    (145, &[0]),
    (146, &[0]),
    (187, &[0, 1]),
    (239, &[0, 1]),
    (313, &[0, 2]),
    (315, &[0, 1]),
    (316, &[0]),
    (378, &[0]),
    (379, &[0]),
];
#[cfg(not(target_arch = "x86_64"))]
const CALLS_32: [Call; 0] = [];
#[cfg(target_arch = "x86_64")]
const MOVING_32: [libc::c_long; 6] = [187, 239, 248, 313, 315, 316];
#[cfg(not(target_arch = "x86_64"))]
const MOVING_32: [libc::c_long; 0] = [];
/// The bit that is set in the numbers of x32 calls.
const X32: libc::c_long = 0x4000_0000;

/// A system call in which a thread is blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedCall {
    /// The descriptors among its arguments; empty for a call that does not work on pipes.
    pub descriptors: Vec<i32>,
    /// Whether it moves data between files in the kernel (splice(2)), or executes calls that may (io_uring_enter(2)).
    pub moves_data: bool,
}

/// Parses the contents of the file, for example `275 0x3 0x0 0x6 …`. Returns `None` for a thread that is not in a call
/// (`running`, `-1 …`).
pub fn parse(text: &str) -> Option<BlockedCall> {
    let mut words = text.split_ascii_whitespace();
    let number: libc::c_long = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let number = number & !X32;
    let arguments: Vec<u64> = words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let known = CALLS.iter().chain(&CALLS_32).filter(|(call, _)| *call == number);
    let positions = known.flat_map(|(_, positions)| positions.iter());
    // A descriptor is the lower 32 bits of the register; the upper bits are undefined.
    let descriptors = positions.filter_map(|position| i32::try_from(*arguments.get(*position)? as u32).ok()).collect();
    Some(BlockedCall { descriptors, moves_data: MOVING.contains(&number) || MOVING_32.contains(&number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(text: &str) -> Option<Vec<i32>> {
        parse(text).map(|call| call.descriptors)
    }

    #[test]
    fn descriptors_are_parsed() {
        let splice = format!("{} 0x3 0x0 0x6 0x0 0x1 0x0 0x7fff8d4d4e68 0x7f69a5b27103\n", libc::SYS_splice);
        assert_eq!(parse(&splice), Some(BlockedCall { descriptors: vec![3, 6], moves_data: true }));
        let write = format!("{} 0xffffffff00000005 0x1 0x1 0x0 0x0 0x0 0x1 0x2", libc::SYS_write);
        assert_eq!(parse(&write), Some(BlockedCall { descriptors: vec![5], moves_data: false }));
        let none = format!("{} 0xffffffffffffffff", libc::SYS_tee);
        assert_eq!(descriptors(&none), Some(vec![]), "an argument that is not a descriptor");
        assert_eq!(descriptors("999999 0x1 0x2 0x3"), Some(vec![]), "a call that does not work on pipes");
        let x32 = format!("{} 0x7 0x0 0x8", libc::SYS_splice | X32);
        assert_eq!(descriptors(&x32), Some(vec![7, 8]));
        for other in ["running", "-1 0x7ffd 0x7f00", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_blocked_on_a_pipe_is_detected() {
        use std::os::fd::AsRawFd;
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let number = reader.as_raw_fd();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid()).expect("send the thread id");
            std::io::Read::read(&mut reader, &mut [0]).expect("read");
        });
        let path = format!("/proc/self/task/{}/syscall", receiver.recv().expect("receive the thread id"));
        let start = std::time::Instant::now();
        while descriptors(&std::fs::read_to_string(&path).expect("read the syscall file")) != Some(vec![number]) {
            assert!(
                start.elapsed().as_secs() < 10,
                "{}",
                std::fs::read_to_string(&path).expect("read the syscall file")
            );
            std::thread::yield_now();
        }
        drop(writer);
        thread.join().expect("join the thread");
    }
}
