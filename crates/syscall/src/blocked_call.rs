//! System calls that threads of other processes are inside (proc(5), `/proc/<pid>/task/<tid>/syscall`).

/// A system call that works on pipes, by number, and which of its arguments are descriptors.
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

/// The numbers that a 32-bit program has for them. The native calls of these numbers work on no pipe, but for close(2).
#[cfg(target_arch = "x86_64")]
const CALLS_32: [Call; 7] =
    [(3, &[0]), (4, &[0]), (145, &[0]), (146, &[0]), (313, &[0, 2]), (315, &[0, 1]), (316, &[0])];
#[cfg(not(target_arch = "x86_64"))]
const CALLS_32: [Call; 0] = [];

/// Descriptors that the call in this text works on: `275 0x3 0x0 0x6 …`. Empty for a call that does not work on pipes, and for a
/// thread that is not inside one (`running`, `-1 …`).
pub fn descriptors(text: &str) -> Vec<i32> {
    let mut words = text.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<libc::c_long>().ok()) else { return Vec::new() };
    let arguments: Vec<u64> = words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let known = CALLS.iter().chain(&CALLS_32).filter(|(call, _)| *call == number);
    let positions = known.flat_map(|(_, positions)| positions.iter());
    // A descriptor is 32 bits of the register; the rest is whatever was there.
    positions.filter_map(|position| i32::try_from(*arguments.get(*position)? as u32).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_those_of_the_call() {
        let splice = format!("{} 0x3 0x0 0x6 0x0 0x1 0x0 0x7fff8d4d4e68 0x7f69a5b27103\n", libc::SYS_splice);
        assert_eq!(descriptors(&splice), [3, 6]);
        let write = format!("{} 0xffffffff00000005 0x1 0x1 0x0 0x0 0x0 0x1 0x2", libc::SYS_write);
        assert_eq!(descriptors(&write), [5]);
        let close = format!("{} 0xffffffffffffffff", libc::SYS_tee);
        assert_eq!(descriptors(&close), [], "no descriptor");
        for other in ["running", "-1 0x7ffd 0x7f00", "", "999999 0x1 0x2 0x3"] {
            assert_eq!(descriptors(other), [], "{other}");
        }
    }

    #[test]
    fn a_thread_that_reads_a_pipe_is_inside_a_call_on_it() {
        use std::os::fd::AsRawFd;
        let (mut reader, writer) = std::io::pipe().expect("pipe");
        let number = reader.as_raw_fd();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).expect("it waits");
            std::io::Read::read(&mut reader, &mut [0]).expect("read");
        });
        let path = format!("/proc/self/task/{}/syscall", told.recv().expect("its id"));
        let begin = std::time::Instant::now();
        while descriptors(&std::fs::read_to_string(&path).expect("it lives")) != [number] {
            assert!(begin.elapsed().as_secs() < 10, "{}", std::fs::read_to_string(&path).expect("it lives"));
            std::thread::yield_now();
        }
        drop(writer);
        thread.join().expect("it ends");
    }
}
