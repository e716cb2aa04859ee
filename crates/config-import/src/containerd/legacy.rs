//! Keys of version 2, in which one plugin had all settings of the CRI.

use crate::source::Setting;

/// The plugin of version 2. Version 3 has the settings of its streaming server there.
const CRI: &str = "io.containerd.grpc.v1.cri";
const IMAGES: &str = "io.containerd.cri.v1.images";
const RUNTIME: &str = "io.containerd.cri.v1.runtime";
/// Keys that are those of images in version 3.
const IMAGE_KEYS: [&str; 6] = [
    "registry",
    "image_decryption",
    "max_concurrent_downloads",
    "image_pull_progress_timeout",
    "image_pull_with_sync_fs",
    "stats_collect_period",
];
/// Keys that keep their place.
const SERVER_KEYS: [&str; 6] = [
    "disable_tcp_service",
    "stream_server_address",
    "stream_server_port",
    "stream_idle_timeout",
    "enable_tls_streaming",
    "x509_key_pair_streaming",
];
/// Keys of `containerd` that are those of images in version 3.
const CONTENT_KEYS: [&str; 3] = ["snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"];

/// Changes the path of a setting of version 2 to that of version 3.
pub(super) fn modernize(setting: &mut Setting) {
    let [plugins, plugin, rest @ ..] = setting.path.as_slice() else { return };
    if plugins != "plugins" || plugin != CRI {
        return;
    }
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    let (plugin, parts) = match parts.as_slice() {
        [key, ..] if SERVER_KEYS.contains(key) => return,
        [key, ..] if IMAGE_KEYS.contains(key) => (IMAGES, parts),
        ["sandbox_image"] => (IMAGES, vec!["pinned_images", "sandbox"]),
        ["containerd", key] if CONTENT_KEYS.contains(key) => (IMAGES, vec![*key]),
        _ => (RUNTIME, parts),
    };
    let path = ["plugins", plugin].into_iter().chain(parts).map(str::to_owned).collect();
    setting.written = Some(std::mem::replace(&mut setting.path, path));
}
