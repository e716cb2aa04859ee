//! Executes the program again from a read-only clone of its mount, before the C library is initialized.
//!
//! A program that enters containers has to run from where no container can write to it (see `container::self_exe`),
//! so it executes itself once more. The initialization of the C library costs a dozen system calls, and 0.3 ms on
//! machines on which the cpuid instruction is slow; with this code it is done only once. Failures are ignored here: the
//! program tries again and reports them.
//!
//! This is linked as the entry point of a static program by `-e program_early_start`. The C library must not be used:
//! thread-local storage is not set up yet, and `memcpy` and similar functions are not resolved. Therefore memory is
//! accessed byte by byte where the compiler could otherwise generate such a call.

use core::{
    arch::{asm, global_asm},
    mem::MaybeUninit,
    ptr,
};

/// Commands that need the protected program.
const COMMANDS: [u64; 4] = [word(b"create"), word(b"run"), word(b"exec"), word(b"restore")];

const PROGRAM: &core::ffi::CStr = c"/proc/self/exe";
/// The index of `f_flags` in `struct statfs`, in words.
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

/// Executes the program again if that is necessary. Returns if it was done already, or is not needed, or not possible.
///
/// # Safety
/// `stack` is the initial stack pointer of the process: the number of arguments, the arguments, NULL, the environment,
/// NULL.
unsafe extern "C" fn early(stack: *const usize) {
    // SAFETY: by the contract the words up to the second NULL exist and the strings end with NUL. The buffers that the
    // kernel writes are as large as it expects, and the memory that it reads is initialized.
    unsafe {
        let count = stack.read();
        let arguments = stack.add(1).cast::<*const u8>();
        if !(1..count).any(|index| COMMANDS.contains(&word_at(arguments.add(index).read()))) {
            return;
        }
        let mut system = [const { MaybeUninit::<u64>::uninit() }; 16];
        let result = call(libc::SYS_statfs, [PROGRAM.as_ptr() as usize, system.as_mut_ptr() as usize, 0, 0, 0]);
        if result != 0 || system[STATFS_FLAGS].assume_init() & READ_ONLY != 0 {
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

/// Converts a short string to a number.
const fn word(text: &[u8]) -> u64 {
    let (mut value, mut index) = (0, 0);
    while index < text.len() {
        value |= (text[index] as u64) << (8 * index);
        index += 1;
    }
    value
}

/// Converts a C string to a number; returns `u64::MAX` if it is longer than 7 bytes.
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

/// Makes a system call. Returns its result, or the negated errno.
///
/// # Safety
/// That of the system call.
unsafe fn call(number: libc::c_long, arguments: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the calling convention of the kernel on x86_64: arguments in these registers; rcx and r11 are clobbered.
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
