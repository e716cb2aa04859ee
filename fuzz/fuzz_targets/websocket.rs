//! A WebSocket client's bytes → pieces of channels.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::websocket(data));
