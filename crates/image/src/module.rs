//! WebAssembly modules as images: artifacts, whose layer is the module itself, and annotations of ordinary images.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    thread,
};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, Timespec, Timestamps, futimens, openat},
};

use crate::{
    Digest, Error,
    single_flight::CancelToken,
    unpack::{Chunks, Limits, UnpackResult, decompress},
};

/// Configurations of artifacts (CNCF TAG Runtime, Wasm OCI Artifact layout; the second is from before that).
const CONFIGS: [&str; 2] = ["application/vnd.wasm.config.v0+json", "application/vnd.wasm.config.v1+json"];
/// Layers that are a module or a component.
const LAYERS: [&str; 2] = ["application/wasm", "application/vnd.wasm.content.layer.v1+wasm"];
/// First bytes of a WebAssembly binary.
const MAGIC: &[u8; 4] = b"\0asm";

/// Path of the module of an artifact, in its root file system.
pub const MODULE_PATH: &str = "/module.wasm";

/// Annotations of an image's manifest that decide what runs it.
const ANNOTATIONS: [&str; 2] = [ANNOTATION_VARIANT, ANNOTATION_HANDLER];
/// Annotation of an image whose entrypoint is a module: `compat` or `compat-smart`.
pub const ANNOTATION_VARIANT: &str = "module.wasm.image/variant";
/// Annotation with the name of a handler: `wasm`.
pub const ANNOTATION_HANDLER: &str = "run.oci.handler";
/// Longest value of an annotation that is kept, in bytes.
const VALUE_MAX: usize = 64;

/// Whether a configuration of this media type is that of an artifact.
pub(crate) fn is_config(media_type: &str) -> bool {
    CONFIGS.contains(&media_type)
}

/// Whether a layer of this media type is a module.
pub(crate) fn is_layer(media_type: &str) -> bool {
    LAYERS.contains(&media_type)
}

/// Returns the annotations of a manifest that are kept.
pub(crate) fn annotations(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = all.iter().filter(|(name, value)| ANNOTATIONS.contains(&name.as_str()) && value.len() <= VALUE_MAX);
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the diff id with which the chain id of a layer that is a module is computed. It differs from the layer's own
/// diff id, because the same bytes as an archive are another directory.
pub(crate) fn chain_diff_id(diff_id: &Digest) -> Digest {
    Digest::of(format!("module {diff_id}").as_bytes())
}

/// Writes the module `source` to [`MODULE_PATH`] in the empty directory `root`. Blocks.
pub(crate) fn unpack_module(
    source: impl Read + Send,
    root: &OwnedFd,
    limits: Limits,
    cancel: &CancelToken,
) -> Result<UnpackResult, Error> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o755);
    let failed = |cause: io::Error| Error::system(format!("write {MODULE_PATH}: {cause}"));
    let file = openat(root, MODULE_PATH.trim_start_matches('/'), flags, mode).map_err(|errno| failed(errno.into()))?;
    rustix::fs::fchmod(&file, mode).map_err(|errno| failed(errno.into()))?;
    let mut file = File::from(file);
    let diff_id = thread::scope(|scope| {
        let started = decompress(scope, source);
        let (mut chunks, inflate) = started.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        copy(&mut chunks, &mut file, limits, cancel)?;
        drop(chunks);
        inflate.join().map_err(|_| Error::system("the decompressing thread panicked"))
    })?;
    // The same module is the same directory, whenever it is unpacked.
    let epoch = Timespec { tv_sec: 0, tv_nsec: 0 };
    let times = Timestamps { last_access: epoch, last_modification: epoch };
    futimens(&file, &times).map_err(|errno| failed(errno.into()))?;
    Ok(UnpackResult { diff_id, implied: vec![Vec::new()] })
}

fn copy(chunks: &mut Chunks, file: &mut File, limits: Limits, cancel: &CancelToken) -> Result<(), Error> {
    let mut magic = MAGIC.as_slice();
    loop {
        let chunk = chunks.fill().map_err(|cause| Error::corrupt(format!("read the module: {cause}")))?;
        if chunk.is_empty() {
            break;
        }
        let head = chunk.len().min(magic.len());
        if chunk[..head] != magic[..head] {
            return Err(Error::invalid("a layer that should be a WebAssembly module does not start with \\0asm"));
        }
        magic = &magic[head..];
        file.write_all(chunk).map_err(|cause| Error::system(format!("write {MODULE_PATH}: {cause}")))?;
        let count = chunk.len();
        chunks.consume(count);
        if chunks.passed() > limits.bytes {
            return Err(limits.exceeded());
        }
        cancel.check()?;
    }
    match magic {
        [] => Ok(()),
        _ => Err(Error::invalid("a layer that should be a WebAssembly module is shorter than its head")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn unpack(bytes: &'static [u8]) -> Result<(Digest, Vec<u8>), Error> {
        let directory = tempfile::tempdir().expect("a directory");
        let root = rustix::fs::open(directory.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("open");
        let limits = Limits { bytes: 100, entries: 1 };
        let unpacked = unpack_module(bytes, &root, limits, &CancelToken::never())?;
        Ok((unpacked.diff_id, std::fs::read(directory.path().join("module.wasm")).expect("read")))
    }

    #[test]
    fn a_module_becomes_a_file_of_the_root() {
        let module = b"\0asm\x01\0\0\0";
        let (diff_id, file) = unpack(module).expect("unpack");
        assert_eq!((diff_id, file.as_slice()), (Digest::of(module), module.as_slice()));
    }

    #[test]
    fn what_is_not_a_module_or_too_large_is_refused() {
        for bytes in [b"\x7fELF".as_slice(), b"\0as", b"", &[b'\0'; 200]] {
            assert!(unpack(bytes).is_err(), "{bytes:?}");
        }
        let large: &'static [u8] = Box::leak([MAGIC.as_slice(), &[0; 200]].concat().into_boxed_slice());
        assert!(unpack(large).is_err_and(|error| error.message.contains("max_layer_bytes")));
    }

    #[test]
    fn only_short_known_annotations_are_kept() {
        let all =
            [(ANNOTATION_VARIANT, "compat".to_owned()), (ANNOTATION_HANDLER, "x".repeat(65)), ("other", "y".into())];
        let all: BTreeMap<String, String> = all.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(annotations(&all).into_keys().collect::<Vec<_>>(), [ANNOTATION_VARIANT]);
    }
}
