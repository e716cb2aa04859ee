use super::*;

fn records() -> (tempfile::TempDir, Records) {
    let folder = tempfile::tempdir().expect("a folder");
    for part in ["sandbox", "container", "broken"] {
        fs::create_dir(folder.path().join(part)).expect("a part");
    }
    let records = Records::new(folder.path());
    (folder, records)
}

#[test]
fn what_was_written_is_read() {
    let (_folder, records) = records();
    records.create(Kind::Sandbox, "a", &"meta").expect("create");
    records.create(Kind::Sandbox, "b", &"meta").expect("create");
    records.write_status(Kind::Sandbox, "a", &7).expect("status");
    records.write_status(Kind::Sandbox, "a", &8).expect("status");
    let mut loaded = records.load::<String, u32>(Kind::Sandbox).expect("load");
    loaded.sort_by_key(|one| one.status);
    assert_eq!((loaded[0].status, loaded[1].status), (None, Some(8)));
    records.remove(Kind::Sandbox, "a").expect("remove");
    records.remove(Kind::Sandbox, "a").expect("remove twice");
    assert_eq!(records.load::<String, u32>(Kind::Sandbox).expect("load").len(), 1);
}

#[test]
fn a_broken_record_is_put_aside_and_the_others_are_read() {
    let (folder, records) = records();
    for id in ["good", "bad", "old"] {
        records.create(Kind::Container, id, &"meta").expect("create");
    }
    fs::write(folder.path().join("container/bad/status.json"), "{\"version\":1,").expect("damage");
    fs::write(folder.path().join("container/old/metadata.json"), "{\"version\":0,\"value\":\"\"}").expect("damage");
    fs::create_dir(folder.path().join("container/unborn")).expect("a folder without metadata");
    assert_eq!(records.load::<String, u32>(Kind::Container).expect("load").len(), 1);
    let left = |part: &str| fs::read_dir(folder.path().join(part)).expect("read").count();
    assert_eq!((left("container"), left("broken")), (1, 2));
}
