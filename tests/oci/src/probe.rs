/// The test program for containers: a static executable built from `payload/probe.c`, which documents its commands.
pub const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe"));
