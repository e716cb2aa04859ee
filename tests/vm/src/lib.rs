//! Tests for the inside of a virtual machine; see `tests/vm/run`.
#![forbid(unsafe_code)]
