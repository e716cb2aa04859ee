//! The bytes of an agent → answers to requests of the daemon.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::answers(data));
