use super::*;

fn records() -> (tempfile::TempDir, Records) {
    let directory = tempfile::tempdir().expect("a directory");
    for part in ["sandbox", "container", "broken"] {
        fs::create_dir(directory.path().join(part)).expect("a part");
    }
    let records = Records::new(directory.path());
    (directory, records)
}

fn id<I: RecordId>(letter: &str) -> I {
    letter.repeat(64).parse().ok().expect("an id")
}

#[test]
fn written_records_are_read() {
    let (_directory, records) = records();
    let (a, b) = (id::<SandboxId>("a"), id::<SandboxId>("b"));
    records.create(&a, &"meta").expect("create");
    records.create(&b, &"meta").expect("create");
    records.write_status(&a, &7).expect("status");
    records.write_status(&a, &8).expect("status");
    let mut loaded = records.load::<SandboxId, String, u32>().expect("load");
    loaded.sort_by_key(|record| record.id.clone());
    let status = |n: usize| *loaded[n].status.as_ref().expect("readable");
    assert_eq!((status(0), status(1)), (Some(8), None));
    records.remove(&a).expect("remove");
    records.remove(&a).expect("remove twice");
    assert_eq!(records.load::<SandboxId, String, u32>().expect("load").len(), 1);
}

#[test]
fn unreadable_records_are_reported_and_other_entries_moved_aside() {
    let (directory, records) = records();
    for letter in ["a", "b", "c", "d"] {
        records.create(&id::<ContainerId>(letter), &"meta").expect("create");
    }
    let file = |letter: &str, name: &str| directory.path().join("container").join(letter.repeat(64)).join(name);
    fs::write(file("b", STATUS), "{\"version\":1,").expect("damage");
    fs::write(file("c", METADATA), "{\"version\":0,\"value\":\"\"}").expect("damage");
    fs::rename(file("d", METADATA), file("d", STATUS)).expect("damage");
    fs::create_dir(directory.path().join("container").join("e".repeat(64))).expect("a directory without metadata");
    fs::create_dir(directory.path().join("container/strange")).expect("not a record");
    let mut loaded = records.load::<ContainerId, String, u32>().expect("load");
    loaded.sort_by_key(|record| record.id.clone());
    let readable: Vec<_> = loaded.iter().map(|record| (record.metadata.is_ok(), record.status.is_ok())).collect();
    assert_eq!(readable, [(true, true), (true, false), (false, true), (false, false)]);
    let message = loaded[2].metadata.as_ref().expect_err("an old format").message.clone();
    assert!(message.contains("format Some(0)"), "{message}");
    let count = |part: &str| fs::read_dir(directory.path().join(part)).expect("read").count();
    assert_eq!((count("container"), count("broken")), (4, 1));
}
