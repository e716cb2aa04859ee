//! Fault campaigns against the real daemon and monitor: all of the code is in `tests/campaign`; see docs/campaigns.md.

#![forbid(unsafe_code)]
