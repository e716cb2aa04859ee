//! A SPDY/3.1 client's bytes → frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::spdy(data));
