//! A process of its own: the heap is the whole process's.
#![cfg(target_env = "gnu")]

use std::fs;

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 1000;

/// Bytes of this process's memory that are in RAM (proc_pid_statm(5)).
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = text.split_whitespace().nth(1).expect("its second field").parse().expect("a number");
    pages * rustix::param::page_size()
}

#[test]
fn what_is_free_between_used_blocks_returns_to_the_kernel() {
    syscall::allocator::bound_arenas(1);
    syscall::allocator::release_freed(4 << 20, 8 << 20);
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    // The top of the heap.
    let last = vec![1u8; BLOCK];
    drop(blocks);
    let (free, before) = (syscall::allocator::free_bytes(), resident());
    assert!(free >= BLOCKS * BLOCK, "{free} bytes are free");
    assert!(before >= BLOCKS * BLOCK, "glibc keeps them: {before}");
    syscall::allocator::trim();
    let after = resident();
    assert!(before - after >= BLOCKS * BLOCK / 2, "{before} bytes before, {after} after");
    assert_eq!(last[BLOCK - 1], 1);
}
