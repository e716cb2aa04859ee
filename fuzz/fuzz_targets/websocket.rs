//! Bytes of a WebSocket client → data of channels.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::websocket(data));
