use serde::{Deserialize, Serialize};

use crate::IdMapping;

/// An entry of `mounts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// Absolute path in the container.
    pub destination: String,
    /// File system type; `bind` is also told by the options.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Device, file or directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// As fstab(5) and the specification's table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Mappings of user ids of an idmapped mount.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uid_mappings: Vec<IdMapping>,
    /// Mappings of group ids of an idmapped mount.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gid_mappings: Vec<IdMapping>,
}
