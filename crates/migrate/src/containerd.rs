//! containerd: names of images in `meta.db`, blobs in the content store.
//!
//! ```text
//! v1 ─ NAMESPACE ─ images ─ NAME ─ target: digest, mediatype, size
//!                ─ containers ─ ID ─ labels, runtime: name
//! ```

use std::{collections::BTreeMap, path::Path, time::Duration};

use crate::{
    Error, Pod, StoredImage,
    bolt::{Bucket, Database, Value},
    content::{self, Descriptor},
    pods::Pods,
};

/// Number of attempts to read a database that its owner changes.
const ATTEMPTS: u32 = 20;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Most bytes of the names of all images.
const NAMES_MAX: usize = 16 << 20;

/// What `meta.db` contains of a namespace.
#[derive(Debug, Default)]
struct Records {
    /// Names by the digest of their target.
    images: BTreeMap<String, (Descriptor, Vec<String>)>,
    pods: Vec<Pod>,
}

/// Returns images and pods of a namespace: `k8s.io` is that of the CRI, `moby` that of Docker.
pub(crate) fn read(root: &Path, namespace: &str) -> Result<(Vec<StoredImage>, Vec<Pod>), Error> {
    let records = records(&root.join("io.containerd.metadata.v1.bolt/meta.db"), namespace)?;
    let content = content::of_containerd(root);
    let image = |(descriptor, names): (Descriptor, Vec<String>)| StoredImage {
        archive: content.layout(&descriptor, &names).map_err(|error| error.to_string()),
        id: descriptor.digest,
        names,
    };
    Ok((records.images.into_values().map(image).collect(), records.pods))
}

fn records(path: &Path, namespace: &str) -> Result<Records, Error> {
    let mut attempt = 0;
    loop {
        let database = Database::open(path)?;
        let records = read_namespace(&database, namespace);
        attempt += 1;
        if database.is_unchanged() {
            return records;
        }
        if attempt == ATTEMPTS {
            let reason =
                format!("changed during each of {ATTEMPTS} attempts to read it; stop containerd and try again");
            return Err(Error::invalid(path, reason));
        }
        std::thread::sleep(PAUSE);
    }
}

fn read_namespace(database: &Database, namespace: &str) -> Result<Records, Error> {
    let mut records = Records::default();
    let Some(version) = database.bucket(&database.root(), "v1")? else { return Ok(records) };
    let Some(namespace) = database.bucket(&version, namespace)? else { return Ok(records) };
    let mut bytes = 0;
    for (name, image) in buckets(database, &namespace, "images")? {
        // The CRI plugin adds the id of an image as a name.
        if name.starts_with("sha256:") {
            continue;
        }
        bytes += name.len();
        if let Some(target) = target(database, &image)?.filter(|_| bytes <= NAMES_MAX) {
            records.images.entry(target.digest.clone()).or_insert_with(|| (target, Vec::new())).1.push(name);
        }
    }
    let mut pods = Pods::default();
    for (_, container) in buckets(database, &namespace, "containers")? {
        add_container(database, &container, &mut pods)?;
    }
    records.pods = pods.finish();
    Ok(records)
}

/// Returns the buckets in a bucket of a bucket.
fn buckets(database: &Database, parent: &Bucket, name: &str) -> Result<Vec<(String, Bucket)>, Error> {
    let Some(bucket) = database.bucket(parent, name)? else { return Ok(Vec::new()) };
    let entries = database.entries(&bucket)?.into_iter();
    Ok(entries
        .filter_map(|(key, value)| match value {
            Value::Bucket(bucket) => Some((String::from_utf8(key).ok()?, bucket)),
            Value::Data(_) => None,
        })
        .collect())
}

fn target(database: &Database, image: &Bucket) -> Result<Option<Descriptor>, Error> {
    let Some(target) = database.bucket(image, "target")? else { return Ok(None) };
    let mut descriptor = Descriptor { media_type: String::new(), digest: String::new(), size: 0 };
    for (key, value) in database.entries(&target)? {
        let Value::Data(data) = value else { continue };
        let text = || String::from_utf8_lossy(&data).into_owned();
        match key.as_slice() {
            b"digest" => descriptor.digest = text(),
            b"mediatype" => descriptor.media_type = text(),
            b"size" => descriptor.size = varint(&data).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(Some(descriptor))
}

fn add_container(database: &Database, container: &Bucket, pods: &mut Pods) -> Result<(), Error> {
    let texts = |name: &str| -> Result<BTreeMap<String, String>, Error> {
        let bucket = database.bucket(container, name)?;
        Ok(bucket.map(|bucket| database.texts(&bucket)).transpose()?.unwrap_or_default().into_iter().collect())
    };
    let (labels, runtime) = (texts("labels")?, texts("runtime")?);
    if let (Some(namespace), Some(name)) =
        (labels.get("io.kubernetes.pod.namespace"), labels.get("io.kubernetes.pod.name"))
    {
        let is_sandbox = labels.get("io.cri-containerd.kind").is_some_and(|kind| kind == "sandbox");
        pods.add(namespace, name, is_sandbox, runtime.get("name").map(String::as_str));
    }
    Ok(())
}

/// Decodes a signed variable-length integer (zigzag), as Go's `binary.PutVarint` writes it.
fn varint(bytes: &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    for (number, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * number as u32)?;
        if byte & 0x80 == 0 {
            // A size is not negative.
            return (value & 1 == 0).then_some(value >> 1);
        }
    }
    None
}

#[cfg(test)]
mod tests;
