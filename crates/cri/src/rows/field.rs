//! Fields of rows that are encoded without generated code.

use cri_proto::v1;
use pod::{ContainerStats, SandboxStats};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};

use crate::status::{attributes_of_container, attributes_of_sandbox};

/// Tag in `LinuxPodSandboxStats`; a test compares these tags with the generated messages.
pub(super) const CONTAINERS: u32 = 5;
/// Tag in `PodSandboxStats`.
pub(super) const LINUX: u32 = 2;

/// Encodes the field `attributes` of `ContainerStats`.
pub(super) fn container_attributes(stats: &ContainerStats) -> Vec<u8> {
    v1::ContainerStats { attributes: Some(attributes_of_container(stats)), ..Default::default() }.encode_to_vec()
}

/// Encodes the field `attributes` of `PodSandboxStats`.
pub(super) fn sandbox_attributes(stats: &SandboxStats) -> Vec<u8> {
    v1::PodSandboxStats { attributes: Some(attributes_of_sandbox(stats)), ..Default::default() }.encode_to_vec()
}

/// Appends a message, given in parts, as a field.
pub(super) fn nested(tag: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(parts.iter().map(|part| part.len() as u64).sum(), out);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
