//! Memory that a hostile layer may use in the daemon. This is the only test of its process, because it measures the
//! process.

mod node;

use std::fs;

use image::ErrorKind;
use node::{Compression, Registry, Tar, TestImage, open};

/// Returns the peak of this process's resident memory since the last call, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    fs::write("/proc/self/clear_refs", "5").unwrap();
    kib / 1024
}

/// Returns an archive of directories, each with `count` extended attributes of `bytes` bytes.
fn attributes(directories: usize, count: usize, bytes: usize) -> Vec<u8> {
    let value = vec![b'x'; bytes];
    let names: Vec<String> = (0..count).map(|at| format!("SCHILY.xattr.user.n{at}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), value.as_slice())).collect();
    (0..directories).fold(Tar::new(), |tar, at| tar.pax(&records).dir(&format!("d{at}"), 0o755)).done()
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_a_hostile_layer_take_little_memory() {
    let registry = Registry::start();
    let bombs = [
        ("one file", attributes(384, 250, 4000), "bytes of extended attributes on one file"),
        ("all directories", attributes(3000, 12, 8000), "paths and attributes of its directories"),
    ];
    for (case, tar, reason) in bombs {
        let image = TestImage::new().layer(tar, Compression::Zstd);
        assert!(image.layers[0].blob.len() < 1 << 20, "{case}: {}", image.layers[0].blob.len());
        registry.push("t", "1", &image).await;
        drop(image);
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let before = peak().min(peak());
        let error = store.pull(&registry.name("t:1"), None, None).await.unwrap_err();
        let taken = peak().saturating_sub(before);
        println!("{case}: {taken} MiB above {before}");
        assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::Corrupt), "{case}: {error}");
        assert!(error.message.contains(reason), "{case}: {error}");
        assert!(taken < 128, "{case}: {taken} MiB");
    }
}
