use super::*;

#[test]
fn a_snapshot_that_was_discarded_during_its_creation_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), crate::Registries::default()).unwrap();
    let image = Digest::of(b"image");
    let snapshot = Snapshot { image, top: None, layers: Vec::new(), volumes: Vec::new(), usage: Usage::default() };
    store.inner.create_snapshot("c", &snapshot, None).unwrap_err();
    assert!(!store.inner.snapshot_path("c").exists());
    store.inner.state.lock().snapshots.insert("c".into(), snapshot.clone());
    store.inner.create_snapshot("c", &snapshot, None).unwrap();
    assert!(store.inner.snapshot_path("c").exists());
}

#[test]
fn a_discard_does_not_wait_for_a_change_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), crate::Registries::default()).unwrap();
    let image = Digest::of(b"an image that is gone");
    let snapshot = Snapshot { image, top: None, layers: Vec::new(), volumes: Vec::new(), usage: Usage::default() };
    store.inner.state.lock().snapshots.insert("c".into(), snapshot.clone());
    store.inner.create_snapshot("c", &snapshot, None).unwrap();
    let writer = store.inner.writer();
    let (sender, discarded) = std::sync::mpsc::channel();
    let other = store.clone();
    std::thread::spawn(move || sender.send(other.discard("c")));
    let discarded = discarded.recv_timeout(std::time::Duration::from_secs(20));
    drop(writer);
    discarded.expect("an answer while the lock is held").unwrap();
}
