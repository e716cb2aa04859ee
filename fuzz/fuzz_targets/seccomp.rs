//! Seccomp profile → filter that the kernel accepts and that agrees with the reference evaluation of the profile.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::seccomp(data));
