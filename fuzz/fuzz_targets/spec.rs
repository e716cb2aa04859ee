//! `config.json` → `oci::Spec` → `container::Plan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::spec(data));
