//! PID 1 of a pod whose containers share one PID namespace. It reaps orphans, and exits on SIGTERM or SIGINT.
//!
//! It has no C library, no heap and no open descriptor. It blocks the signals and takes them synchronously: the kernel
//! discards unblocked signals to an init without a handler, and no signal is missed.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

#[cfg(target_arch = "x86_64")]
mod number {
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const WAIT4: usize = 61;
    pub const EXIT_GROUP: usize = 231;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const WAIT4: usize = 260;
    pub const EXIT_GROUP: usize = 94;
}

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor %ebp, %ebp", "and $-16, %rsp", "call {main}", main = sym main, options(att_syntax));
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, #0", "mov x30, #0", "b {main}", main = sym main);

const SIGINT: isize = 2;
const SIGTERM: isize = 15;
const SIGCHLD: isize = 17;
const SIG_BLOCK: usize = 0;
const SET_SIZE: usize = 8;
const WNOHANG: usize = 1;

extern "C" fn main() -> ! {
    let set: u64 = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1) | 1 << (SIGCHLD - 1);
    let set = (&raw const set) as usize;
    // SAFETY: the kernel reads SET_SIZE bytes of `set`, which lives forever, and writes no memory of this program in
    // any call.
    unsafe {
        call(number::RT_SIGPROCMASK, [SIG_BLOCK, set, 0, SET_SIZE]);
        loop {
            match call(number::RT_SIGTIMEDWAIT, [set, 0, 0, SET_SIZE]) {
                SIGINT | SIGTERM => {
                    call(number::EXIT_GROUP, [0; 4]);
                }
                _ => while call(number::WAIT4, [usize::MAX, 0, WNOHANG, 0]) > 0 {},
            }
        }
    }
}

/// Makes a system call.
///
/// # Safety
/// The arguments must satisfy the requirements of the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, [a, b, c, d]: [usize; 4]) -> isize {
    let result;
    // SAFETY: the asm block declares all registers that the kernel changes; the caller ensures the rest.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result
}

/// Makes a system call.
///
/// # Safety
/// The arguments must satisfy the requirements of the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, [a, b, c, d]: [usize; 4]) -> isize {
    let result;
    // SAFETY: the asm block declares all registers that the kernel changes; the caller ensures the rest.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d, options(nostack));
    }
    result
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
