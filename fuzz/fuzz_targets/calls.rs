//! The bytes of the daemon → calls to the agent.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::calls(data));
