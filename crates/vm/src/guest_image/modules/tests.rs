use std::fs;

use super::{
    super::decompress::tests::{XZ, XZ_CONTENT, gzip, zstd},
    *,
};

/// `modules.dep` of a kernel with modules in several compressions.
const DEPENDENCIES: &str = "\
kernel/virtio.ko:
kernel/virtio_ring.ko: kernel/virtio.ko
kernel/virtio_pci.ko.xz: kernel/virtio_ring.ko kernel/virtio.ko
kernel/virtio_console.ko.gz: kernel/virtio_ring.ko kernel/virtio.ko
kernel/fuse/fuse.ko.zst:
kernel/fuse/virtiofs.ko.zst: kernel/fuse/fuse.ko.zst kernel/virtio_ring.ko kernel/virtio.ko
kernel/virtio_net.ko: kernel/virtio_ring.ko kernel/virtio.ko
kernel/virtio-rng.ko: kernel/virtio_ring.ko kernel/virtio.ko
kernel/libcrc32c.ko:
kernel/crc32c-arch.ko:
kernel/nf_tables.ko: kernel/libcrc32c.ko
kernel/nft_ct.ko: kernel/nf_tables.ko kernel/libcrc32c.ko
kernel/unused.ko: kernel/libcrc32c.ko

";

/// Makes the modules of a kernel under `directory`.
pub(in super::super) fn make_modules(directory: &Path) {
    let write = |name: &str, content: &[u8]| {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    for line in DEPENDENCIES.lines().filter(|line| !line.is_empty()) {
        let path = line.split(':').next().unwrap();
        let content = match path.rsplit('.').next().unwrap() {
            "xz" => XZ.to_vec(),
            "gz" => gzip(path.as_bytes()),
            "zst" => zstd(path.as_bytes()),
            _ => path.as_bytes().to_vec(),
        };
        write(path, &content);
    }
    write("modules.dep", DEPENDENCIES.as_bytes());
    write("modules.builtin", b"kernel/fs/overlayfs/overlay.ko\nkernel/drivers/net/veth.ko\n");
    write("modules.softdep", b"# comment\nsoftdep libcrc32c pre: crc32c\nsoftdep nft_ct post: unused\n");
    write("modules.alias", b"# comment\nalias crc32c crc32c_arch\nalias fs-virtiofs virtiofs\nalias nft-hw* nft_ct\n");
}

fn select(directory: &Path) -> Modules {
    Modules::select(directory).unwrap()
}

#[test]
fn modules_are_selected_in_load_order() {
    let directory = tempfile::tempdir().unwrap();
    make_modules(directory.path());
    let modules = select(directory.path());
    let boot =
        ["virtio", "virtio_ring", "virtio_pci", "virtio_console", "fuse", "virtiofs", "virtio_net", "virtio-rng"];
    assert_eq!(modules.boot, boot.map(|name| format!("{name}.ko")));
    let files = |names: &[&str]| names.iter().map(|name| format!("{name}.ko")).collect::<Vec<_>>();
    let demand = |name: &str, names: &[&str]| OnDemand { name: name.to_owned(), files: files(names) };
    let expected = [
        demand("crc32c_arch", &["crc32c-arch"]),
        demand("crc32c", &["crc32c-arch"]),
        demand("libcrc32c", &["crc32c-arch", "libcrc32c"]),
        demand("nf_tables", &["crc32c-arch", "libcrc32c", "nf_tables"]),
        demand("nft_ct", &["crc32c-arch", "libcrc32c", "nf_tables", "nft_ct"]),
    ];
    assert_eq!(modules.demand, expected);
    let names: Vec<_> = modules.files.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, [&modules.boot[..], &expected[4].files].concat());
    assert_eq!(modules.files[2].1, directory.path().join("kernel/virtio_pci.ko.xz"));
    assert!(modules.missing_optional.contains(&"erofs".to_owned()));
    assert!(!modules.missing_optional.contains(&"veth".to_owned()), "veth is built in");
    assert!(!modules.missing_optional.contains(&"virtio_rng".to_owned()), "virtio-rng is virtio_rng");
}

#[test]
fn a_soft_dependency_that_the_kernel_provides_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    make_modules(directory.path());
    fs::write(directory.path().join("modules.builtin.modinfo"), "crc32c_generic.alias=crc32c\0x.license=GPL\0")
        .unwrap();
    let demand = select(directory.path()).demand;
    let tables = demand.iter().find(|module| module.name == "nf_tables").unwrap();
    assert_eq!(tables.files, ["libcrc32c.ko", "nf_tables.ko"]);
}

#[test]
fn cycles_end() {
    let directory = tempfile::tempdir().unwrap();
    make_modules(directory.path());
    fs::write(
        directory.path().join("modules.softdep"),
        "softdep crc32c_arch pre: nft_ct\nsoftdep libcrc32c pre: crc32c\n",
    )
    .unwrap();
    let demand = select(directory.path()).demand;
    assert!(demand.iter().any(|module| module.name == "nft_ct" && module.files.last().unwrap() == "nft_ct.ko"));
}

#[test]
fn compressed_modules_are_unpacked() {
    let directory = tempfile::tempdir().unwrap();
    make_modules(directory.path());
    let read = |name: &str| read(&directory.path().join("kernel").join(name)).unwrap();
    assert_eq!(read("virtio_pci.ko.xz"), XZ_CONTENT);
    assert_eq!(read("virtio_console.ko.gz"), b"kernel/virtio_console.ko.gz");
    assert_eq!(read("fuse/fuse.ko.zst"), b"kernel/fuse/fuse.ko.zst");
    assert_eq!(read("virtio.ko"), b"kernel/virtio.ko");
}

#[test]
fn errors_have_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("lib/modules/6.1");
    let select = || Modules::select(&directory).unwrap_err();
    let depmod = format!("run depmod -b {} 6.1", root.path().display());
    assert_eq!((select().kind, select().remedy), (ErrorKind::NotFound, Some(depmod.clone())));
    make_modules(&directory);
    for line in ["kernel/a.ko", "/etc/a.ko:", "../a.ko:", "kernel/a:"] {
        fs::write(directory.join("modules.dep"), line).unwrap();
        assert_eq!((select().kind, select().remedy), (ErrorKind::Invalid, Some(depmod.clone())), "{line}");
    }
    fs::write(directory.join("modules.dep"), "kernel/virtio_pci.ko:\n").unwrap();
    assert_eq!(select().cause, "the kernel has no virtio_console, virtiofs, virtio_net");
}
