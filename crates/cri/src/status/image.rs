use cri_proto::v1;
use pod::{Engine, Image};

/// Converts to the `Image` of `ListImages` and `ImageStatus`.
pub(crate) fn image(engine: &Engine, image: &Image) -> v1::Image {
    let (uid, username) = user(&image.config.user);
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size,
        uid: uid.map(|value| v1::Int64Value { value }),
        username,
        spec: None,
        pinned: engine.is_pinned(image),
    }
}

/// Splits the user of an image: `1000:1000` → the uid; `www:www` → the name. Kubelet needs them to check
/// `runAsNonRoot`. If both are empty, kubelet assumes root.
pub(super) fn user(user: &str) -> (Option<i64>, String) {
    let name = user.split_once(':').map_or(user, |(name, _group)| name);
    match name.parse() {
        Ok(uid) => (Some(uid), String::new()),
        Err(_) => (None, name.to_owned()),
    }
}
