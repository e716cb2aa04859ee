//! A separate test program, because the heap is shared by the whole process.
#![cfg(target_env = "gnu")]

use std::fs;

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 1000;

/// Returns the resident set size in bytes (proc_pid_statm(5)).
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").expect("read statm");
    let pages: usize = text.split_whitespace().nth(1).expect("get the second field").parse().expect("parse the number");
    pages * rustix::param::page_size()
}

#[test]
fn free_memory_between_used_blocks_is_returned_to_the_kernel() {
    syscall::allocator::limit_arenas(1);
    syscall::allocator::set_release_thresholds(4 << 20, 8 << 20);
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    // A used block at the top of the heap.
    let last = vec![1u8; BLOCK];
    drop(blocks);
    let (free, before) = (syscall::allocator::free_bytes(), resident());
    assert!(free >= BLOCKS * BLOCK, "{free} bytes are free");
    assert!(before >= BLOCKS * BLOCK, "glibc has already returned memory: {before}");
    syscall::allocator::trim();
    let after = resident();
    assert!(before - after >= BLOCKS * BLOCK / 2, "{before} bytes before, {after} after");
    assert_eq!(last[BLOCK - 1], 1);
}
