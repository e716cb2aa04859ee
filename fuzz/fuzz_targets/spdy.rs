//! Bytes of a SPDY/3.1 client → frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::spdy(data));
