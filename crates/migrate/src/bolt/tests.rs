use std::fs;

use super::*;

const PAGE: usize = 4096;

/// A tree of buckets that [`write`] encodes.
pub(crate) enum Node {
    Data(Vec<u8>),
    /// A bucket with pages of its own; each inner list is a leaf.
    Bucket(Vec<(Vec<u8>, Node)>),
    /// A bucket that is inline.
    Inline(Vec<(Vec<u8>, Node)>),
}

/// Writes a database whose root bucket has these entries.
pub(crate) fn write(path: &Path, entries: &[(Vec<u8>, Node)]) {
    let mut pages: Vec<Vec<u8>> = vec![Vec::new(), Vec::new()];
    let root = add_bucket(entries, &mut pages);
    for (number, transaction) in [(0, 7u64), (1, 6)] {
        let mut meta = Vec::new();
        for value in [MAGIC, VERSION, PAGE as u32, 0] {
            meta.extend_from_slice(&value.to_ne_bytes());
        }
        // The older transaction has another root.
        for value in [if number == 0 { root } else { 9999 }, 0, 0, pages.len() as u64, transaction] {
            meta.extend_from_slice(&value.to_ne_bytes());
        }
        meta.extend_from_slice(&fnv(&meta).to_ne_bytes());
        pages[number] = [vec![0; HEADER], meta].concat();
    }
    let mut file = Vec::new();
    for (number, mut page) in pages.into_iter().enumerate() {
        page.resize(page.len().next_multiple_of(PAGE), 0);
        page[..8].copy_from_slice(&(number as u64).to_ne_bytes());
        file.extend_from_slice(&page);
    }
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, file).expect("written");
}

fn add_bucket(entries: &[(Vec<u8>, Node)], pages: &mut Vec<Vec<u8>>) -> u64 {
    // Two leaves below a branch, to test both.
    let middle = entries.len() / 2;
    if middle == 0 {
        return add_leaf(entries, pages);
    }
    let children = [add_leaf(&entries[..middle], pages), add_leaf(&entries[middle..], pages)];
    let mut page = header(BRANCH, 2);
    for child in children {
        // No key: the reader does not need it.
        page.extend_from_slice(&[0u32.to_ne_bytes(), 0u32.to_ne_bytes()].concat());
        page.extend_from_slice(&child.to_ne_bytes());
    }
    pages.push(page);
    pages.len() as u64 - 1
}

fn add_leaf(entries: &[(Vec<u8>, Node)], pages: &mut Vec<Vec<u8>>) -> u64 {
    let mut page = leaf_page(entries, pages);
    let overflow = page.len().div_ceil(PAGE) - 1;
    page[12..16].copy_from_slice(&(overflow as u32).to_ne_bytes());
    page.resize((overflow + 1) * PAGE, 0);
    // The overflow pages follow at once.
    let id = pages.len() as u64;
    pages.extend(page.chunks(PAGE).map(<[u8]>::to_vec));
    id
}

fn leaf_page(entries: &[(Vec<u8>, Node)], pages: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let mut page = header(LEAF, entries.len() as u16);
    let mut data = Vec::new();
    let end = HEADER + entries.len() * ELEMENT;
    for (number, (key, node)) in entries.iter().enumerate() {
        let (flags, value) = match node {
            Node::Data(bytes) => (0, bytes.clone()),
            Node::Bucket(inner) => (BUCKET, [add_bucket(inner, pages).to_ne_bytes(), [0; 8]].concat()),
            Node::Inline(inner) => (BUCKET, [vec![0; 16], leaf_page(inner, pages)].concat()),
        };
        let position = end + data.len() - (HEADER + number * ELEMENT);
        for value in [flags, position as u32, key.len() as u32, value.len() as u32] {
            page.extend_from_slice(&value.to_ne_bytes());
        }
        data.extend_from_slice(key);
        data.extend_from_slice(&value);
    }
    page.extend_from_slice(&data);
    page
}

fn header(flags: u16, count: u16) -> Vec<u8> {
    let mut header = vec![0; 8];
    header.extend_from_slice(&flags.to_ne_bytes());
    header.extend_from_slice(&count.to_ne_bytes());
    header.extend_from_slice(&[0; 4]);
    header
}

pub(crate) fn data(key: &str, value: &[u8]) -> (Vec<u8>, Node) {
    (key.into(), Node::Data(value.to_vec()))
}

fn example(path: &Path) {
    let many = (0..300).map(|number| data(&format!("key{number:03}"), &[b'v'; 100])).collect();
    write(
        path,
        &[
            data("x", b"1"),
            ("b".into(), Node::Bucket(many)),
            ("i".into(), Node::Inline(vec![data("k", b"v"), data("l", b"w")])),
        ],
    );
}

#[test]
fn buckets_branches_and_inline_buckets_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    example(&path);
    let database = Database::open(&path).expect("open");
    let root = database.root();
    assert_eq!(database.texts(&root).expect("read"), [("x".to_owned(), "1".to_owned())]);
    let bucket = database.bucket(&root, "b").expect("read").expect("a bucket");
    let texts = database.texts(&bucket).expect("read");
    assert_eq!((texts.len(), texts[299].0.as_str(), texts[299].1.len()), (300, "key299", 100));
    let inline = database.bucket(&root, "i").expect("read").expect("a bucket");
    assert_eq!(database.texts(&inline).expect("read")[1], ("l".to_owned(), "w".to_owned()));
    assert!(
        database.bucket(&root, "x").expect("read").is_none() && database.bucket(&root, "y").expect("read").is_none()
    );
}

#[test]
fn a_transaction_in_between_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    example(&path);
    let database = Database::open(&path).expect("open");
    assert!(database.is_unchanged());
    // The writer commits by writing the older of the two meta pages.
    let mut bytes = fs::read(&path).expect("read");
    let meta = PAGE + HEADER;
    bytes[meta + 48..meta + 56].copy_from_slice(&8u64.to_ne_bytes());
    let sum = fnv(&bytes[meta..meta + 56]);
    bytes[meta + 56..meta + 64].copy_from_slice(&sum.to_ne_bytes());
    let file = fs::File::options().write(true).open(&path).expect("open");
    file.write_all_at(&bytes, 0).expect("written");
    assert!(!database.is_unchanged());
}

#[test]
fn a_damaged_first_meta_page_is_replaced_by_the_second() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    example(&path);
    let mut bytes = fs::read(&path).expect("read");
    bytes[HEADER + 20] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let database = Database::open(&path).expect("the second one is valid");
    assert_eq!((database.meta.transaction, database.meta.root), (6, 9999));
    assert!(database.entries(&database.root()).is_err(), "the page does not exist");
    bytes[PAGE + HEADER + 20] ^= 1;
    fs::write(&path, &bytes).expect("written");
    assert!(Database::open(&path).is_err());
}

/// Reads everything below a bucket.
fn walk(database: &Database, bucket: &Bucket, depth: u32) {
    for (_, value) in database.entries(bucket).unwrap_or_default().into_iter().take(400) {
        if let (Value::Bucket(inner), true) = (value, depth < 4) {
            walk(database, &inner, depth + 1);
        }
    }
}

#[test]
fn changed_bytes_are_errors_and_never_a_panic_or_a_loop() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    example(&path);
    let original = fs::read(&path).expect("read");
    let mut random = 0x1234_5678_9abc_def1u64;
    for _ in 0..300 {
        let mut bytes = original.clone();
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Not the meta pages: their checksum would end the test.
            let at = 2 * PAGE + random as usize % (bytes.len() - 2 * PAGE);
            bytes[at] = (random >> 32) as u8;
        }
        fs::write(&path, &bytes).expect("written");
        let database = Database::open(&path).expect("the meta pages are intact");
        walk(&database, &database.root(), 0);
    }
}

#[test]
fn a_loop_of_pages_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    example(&path);
    let mut bytes = fs::read(&path).expect("read");
    let root = Database::open(&path).expect("open").meta.root as usize * PAGE;
    // The root becomes a branch whose children are the root itself.
    bytes[root + 8..root + 10].copy_from_slice(&BRANCH.to_ne_bytes());
    bytes[root + 10..root + 12].copy_from_slice(&1u16.to_ne_bytes());
    bytes[root + HEADER + 8..root + HEADER + 16].copy_from_slice(&((root / PAGE) as u64).to_ne_bytes());
    fs::write(&path, &bytes).expect("written");
    let database = Database::open(&path).expect("open");
    assert!(database.entries(&database.root()).is_err());
}
