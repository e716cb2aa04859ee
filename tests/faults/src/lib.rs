//! Fault campaigns against the real daemon and monitor. All code is in `tests/campaign`; see docs/campaigns.md.

#![forbid(unsafe_code)]
