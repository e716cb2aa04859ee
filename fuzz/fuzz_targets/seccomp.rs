//! A profile → a filter that the kernel takes and that says what the profile says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::seccomp(data));
