use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, flock};

use super::{
    cpio::tests::parse,
    decompress::tests::{XZ_CONTENT, gzip},
    elf::tests::{elf, pvh_segment},
    kernel::tests::bz_image,
    modules::tests::make_modules,
    *,
};

const RELEASE: &str = "6.1.0-1-amd64";

/// Makes a root directory with a kernel, and an agent.
fn make_sources(root: &Path) -> Sources {
    make_modules(&root.join("lib/modules").join(RELEASE));
    fs::create_dir(root.join("boot")).unwrap();
    let kernel = elf(&[pvh_segment()], b"kernel");
    fs::write(root.join("boot").join(format!("vmlinuz-{RELEASE}")), bz_image(&gzip(&kernel))).unwrap();
    fs::write(root.join("agent"), elf(&[], b"agent")).unwrap();
    Sources::find(root, None, root.join("agent")).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_image_is_built_and_opened() {
    let root = tempfile::tempdir().unwrap();
    let sources = make_sources(root.path());
    let target = root.path().join("images/guest");
    let description = build(&sources, &target).unwrap();
    let image = open(&target).unwrap();
    assert_eq!(image, Image { directory: target, description: description.clone() });
    assert_eq!((description.release.as_str(), description.format), (RELEASE, KernelFormat::Elf));
    let kernel = fs::read(image.kernel()).unwrap();
    assert!(kernel == elf(&[pvh_segment()], b"kernel"));
    let initramfs = fs::read(image.initramfs()).unwrap();
    assert_eq!(description.id, hexadecimal(&Sha256::digest([kernel, initramfs].concat())));
    assert_eq!(names(&root.path().join("images")), ["guest"]);
}

#[test]
fn the_initramfs_has_the_agent_and_the_modules() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("image");
    let description = build(&make_sources(root.path()), &target).unwrap();
    let entries = parse(&fs::read(target.join(INITRAMFS)).unwrap());
    let content = |path: &str| &entries.iter().find(|entry| entry.path == path).unwrap().content;
    assert!(*content("init") == elf(&[], b"agent"));
    assert_eq!(content("modules/virtio_pci.ko"), XZ_CONTENT);
    let boot = String::from_utf8(content("modules/boot").clone()).unwrap();
    assert!(boot.starts_with("/modules/virtio.ko\n/modules/virtio_ring.ko\n/modules/virtio_pci.ko\n"), "{boot}");
    let demand = String::from_utf8(content("modules/demand").clone()).unwrap();
    let line = "nf_tables: /modules/crc32c-arch.ko /modules/libcrc32c.ko /modules/nf_tables.ko\n";
    assert!(demand.contains(line), "{demand}");
    let mut listed: Vec<_> =
        boot.lines().chain(demand.lines().flat_map(|line| line.split(' ').skip(1))).map(|path| &path[1..]).collect();
    listed.sort_unstable();
    listed.dedup();
    let files: Vec<_> =
        entries.iter().filter(|entry| entry.path.ends_with(".ko")).map(|entry| entry.path.as_str()).collect();
    assert_eq!(files, listed);
    assert_eq!(files.len(), description.modules.len());
    let others: Vec<_> = entries.iter().filter(|entry| !entry.path.ends_with(".ko")).collect();
    let others: Vec<_> = others.iter().map(|entry| (entry.path.as_str(), entry.mode)).collect();
    let expected = [
        ("dev", 0o040_755),
        ("dev/console", 0o020_600),
        ("init", 0o100_755),
        ("proc", 0o040_755),
        ("run", 0o040_755),
        ("sys", 0o040_755),
        ("tmp", 0o041_777),
        ("modules", 0o040_755),
        ("modules/boot", 0o100_644),
        ("modules/demand", 0o100_644),
    ];
    assert_eq!(others, expected);
}

#[test]
fn an_image_is_replaced_and_a_killed_build_removed() {
    let root = tempfile::tempdir().unwrap();
    let sources = make_sources(root.path());
    let target = root.path().join("images/guest");
    let first = build(&sources, &target).unwrap();
    fs::create_dir(root.path().join("images/guest.new")).unwrap();
    fs::write(root.path().join("images/guest.new/kernel"), "incomplete").unwrap();
    assert_eq!(build(&sources, &target).unwrap(), first, "the same sources make the same image");
    fs::write(&sources.agent, elf(&[], b"new agent")).unwrap();
    let second = build(&sources, &target).unwrap();
    assert_ne!(second.id, first.id);
    assert_eq!(open(&target).unwrap().description, second);
    fs::remove_file(&sources.kernel).unwrap();
    assert_eq!(build(&sources, &target).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(open(&target).unwrap().description, second, "a build that fails changes nothing");
    assert_eq!(names(&root.path().join("images")), ["guest"]);
}

#[test]
fn a_directory_of_other_files_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let sources = make_sources(root.path());
    for target in ["boot", "agent"] {
        build(&sources, &root.path().join(target)).unwrap_err();
    }
    assert!(sources.kernel.exists() && sources.agent.exists());
    fs::create_dir(root.path().join("image.new")).unwrap();
    fs::write(root.path().join("image.new/data"), "").unwrap();
    let error = build(&sources, &root.path().join("image")).unwrap_err();
    assert!(error.cause.contains("contains data"), "{error}");
    assert!(root.path().join("image.new/data").exists());
}

#[test]
fn two_builds_at_a_time_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let sources = make_sources(root.path());
    let parent = fs::File::open(root.path()).unwrap();
    flock(parent.as_fd(), FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(build(&sources, &root.path().join("image")).unwrap_err().kind, ErrorKind::Busy);
}

#[test]
fn a_dynamic_agent_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let sources = make_sources(root.path());
    let build_with = |agent: Vec<u8>| {
        fs::write(&sources.agent, agent).unwrap();
        build(&sources, &root.path().join("image")).unwrap_err().cause
    };
    assert_eq!(build_with(elf(&[(3, b"/lib/ld.so\0".to_vec())], b"")), "dynamically linked");
    assert_eq!(build_with(b"#!/bin/sh\n".to_vec()), "not an ELF program of 64 bits");
}

#[test]
fn an_incomplete_image_is_not_opened() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("image");
    assert_eq!(open(&target).unwrap_err().kind, ErrorKind::NotFound);
    build(&make_sources(root.path()), &target).unwrap();
    fs::write(target.join(INITRAMFS), "short").unwrap();
    let error = open(&target).unwrap_err();
    assert_eq!((error.kind, error.remedy.as_deref()), (ErrorKind::Invalid, Some("build the image again")));
    fs::remove_file(target.join(INITRAMFS)).unwrap();
    assert_eq!(open(&target).unwrap_err().kind, ErrorKind::NotFound);
    fs::write(target.join(DESCRIPTION), "{}").unwrap();
    assert_eq!(open(&target).unwrap_err().kind, ErrorKind::Invalid);
}
