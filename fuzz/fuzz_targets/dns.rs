//! A message of a pod → a query of DNS.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::dns(data));
