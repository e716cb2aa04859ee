//! Executing the program again, from a read-only clone of its mount, before the C library has started.
//!
//! A program that enters containers has to run from where no container can write to it (see `container::own_program`),
//! so it executes itself once more. The C library's start costs 0.3 ms on machines where cpuid(2) is slow, and a dozen
//! system calls; done here, it is paid once. Whatever fails here is left to the program, which tries again and tells.
//!
//! Linked as the entry of a static program by `-e program_early_start`. Nothing of the C library may be used: there is
//! no thread-local storage yet, and `memcpy` and its like are not resolved; so memory is read and written byte by byte
//! where the compiler could make such a call of it.

use core::{
    arch::{asm, global_asm},
    mem::MaybeUninit,
    ptr,
};

/// Commands that run from a safe program.
const COMMANDS: [u64; 4] = [word(b"create"), word(b"run"), word(b"exec"), word(b"restore")];

const PROGRAM: &core::ffi::CStr = c"/proc/self/exe";
/// Index of `f_flags` in `struct statfs`, in words.
const STATFS_FLAGS: usize = 10;
/// `ST_RDONLY`.
const READ_ONLY: u64 = 1;
/// `MOUNT_ATTR_RDONLY`.
const ATTRIBUTE_READ_ONLY: u64 = 1;

global_asm!(
    ".globl program_early_start",
    ".type program_early_start, @function",
    "program_early_start:",
    "mov r12, rdx",
    "mov rbx, rsp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {early}",
    "mov rsp, rbx",
    "mov rdx, r12",
    "jmp _start",
    early = sym early,
);

/// Executes the program again where it has to be; returns where that is done, or not needed, or not possible.
///
/// # Safety
/// `stack` is the process's first stack pointer: the count of the arguments, they, NULL, the environment, NULL.
unsafe extern "C" fn early(stack: *const usize) {
    // SAFETY: by the contract the words up to the second NULL are there; the strings end with NUL; what the kernel
    // writes to is as large as it expects, and what it reads is initialized.
    unsafe {
        let count = stack.read();
        let arguments = stack.add(1).cast::<*const u8>();
        if !(1..count).any(|index| COMMANDS.contains(&word_at(arguments.add(index).read()))) {
            return;
        }
        let mut system = [const { MaybeUninit::<u64>::uninit() }; 16];
        let asked = call(libc::SYS_statfs, [PROGRAM.as_ptr() as usize, system.as_mut_ptr() as usize, 0, 0, 0]);
        if asked != 0 || system[STATFS_FLAGS].assume_init() & READ_ONLY != 0 {
            return;
        }
        let flags = libc::OPEN_TREE_CLONE as usize | libc::OPEN_TREE_CLOEXEC as usize;
        let tree = call(libc::SYS_open_tree, [libc::AT_FDCWD as usize, PROGRAM.as_ptr() as usize, flags, 0, 0]);
        if tree < 0 {
            return;
        }
        let (tree, empty, by_fd) = (tree as usize, c"".as_ptr() as usize, libc::AT_EMPTY_PATH as usize);
        let mut attributes = [const { MaybeUninit::<u64>::uninit() }; 4];
        for (index, value) in [ATTRIBUTE_READ_ONLY, 0, 0, 0].into_iter().enumerate() {
            ptr::write_volatile(attributes[index].as_mut_ptr(), value);
        }
        let size = size_of_val(&attributes);
        if call(libc::SYS_mount_setattr, [tree, empty, by_fd, attributes.as_ptr() as usize, size]) == 0 {
            let environment = arguments.add(count + 1) as usize;
            call(libc::SYS_execveat, [tree, empty, arguments as usize, environment, by_fd]);
        }
        call(libc::SYS_close, [tree, 0, 0, 0, 0]);
    }
}

/// A short string as a number.
const fn word(text: &[u8]) -> u64 {
    let (mut value, mut index) = (0, 0);
    while index < text.len() {
        value |= (text[index] as u64) << (8 * index);
        index += 1;
    }
    value
}

/// The same of a C string; `u64::MAX` for one that is longer than 7 bytes.
///
/// # Safety
/// The string ends with NUL.
unsafe fn word_at(text: *const u8) -> u64 {
    let mut value = 0;
    for index in 0..8 {
        // SAFETY: no byte before this one was the NUL.
        match unsafe { text.add(index).read_volatile() } {
            0 => return value,
            byte => value |= u64::from(byte) << (8 * index),
        }
    }
    u64::MAX
}

/// A system call: its result, or the negative error number.
///
/// # Safety
/// That of the call.
unsafe fn call(number: libc::c_long, arguments: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention on x86_64: arguments in these registers, rcx and r11 overwritten.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
