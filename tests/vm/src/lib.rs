//! Tests that run inside a virtual machine; see `tests/vm/run`.
#![forbid(unsafe_code)]
