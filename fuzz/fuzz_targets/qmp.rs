//! The lines of QEMU → what its driver receives.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::qmp(data));
