use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::ErrorKind;

fn accounts() -> Accounts {
    Accounts {
        passwd: "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/:/bin/false\nbroken\n12:x:99:99::/:\n".into(),
        group: "root:x:0:\nweb:x:34:\nextra:x:50:web,root\nmore:x:51: web\n".into(),
    }
}

fn resolve(choice: UserChoice, image: &str) -> Result<(u32, u32, Vec<u32>), Error> {
    let user = accounts().resolve(&choice, image, &[7, 50], GroupsPolicy::Merge)?;
    Ok((user.uid, user.gid, user.additional_gids))
}

#[test]
fn names_and_numbers_are_resolved_by_the_image() {
    let user = |image| resolve(UserChoice::Image, image).expect(image);
    assert_eq!(user(""), (0, 0, vec![0, 7, 50]));
    assert_eq!(user("web"), (33, 34, vec![34, 7, 50, 51]));
    assert_eq!(user("33"), (33, 34, vec![34, 7, 50, 51]));
    assert_eq!(user("1000"), (1000, 0, vec![0, 7, 50]));
    assert_eq!(user("1000:1001"), (1000, 1001, vec![1001, 7, 50]));
    assert_eq!(user("web:extra"), (33, 50, vec![50, 7, 51]));
    // A name has precedence over a number, as in chown(1).
    assert_eq!(user("12"), (99, 99, vec![99, 7, 50]));
    assert_eq!(resolve(UserChoice::Uid { uid: 33, gid: None }, "").expect("uid").1, 34);
    assert_eq!(resolve(UserChoice::Uid { uid: 33, gid: Some(5) }, "").expect("gid").1, 5);
    assert_eq!(resolve(UserChoice::Name("web".into()), "root").expect("name").0, 33);
}

#[test]
fn strict_takes_no_groups_of_the_image() {
    let user = accounts().resolve(&UserChoice::Image, "web", &[7], GroupsPolicy::Strict).expect("user");
    assert_eq!(user.additional_gids, [34, 7]);
}

#[test]
fn an_unknown_user_or_group_is_an_error_that_names_it() {
    for (choice, image) in
        [(UserChoice::Image, "nobody"), (UserChoice::Name("x:y".into()), ""), (UserChoice::Image, "web:x")]
    {
        let error = resolve(choice, image).expect_err("unknown");
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains("is not in the image's"), "{error}");
    }
    assert!(resolve(UserChoice::Uid { uid: -1, gid: None }, "").is_err());
    assert!(resolve(UserChoice::Uid { uid: i64::from(u32::MAX), gid: None }, "").is_err());
}

#[test]
fn only_regular_files_within_the_root_are_read() {
    let root = tempfile::tempdir().expect("root");
    let etc = root.path().join("etc");
    let open = || fs::File::open(root.path()).expect("root");
    assert!(Accounts::read(open()).expect("missing files are empty").passwd.is_empty());
    fs::create_dir(&etc).expect("etc");
    // A link to a file of the node is resolved within the root, where that file does not exist.
    symlink("/etc/hostname", etc.join("passwd")).expect("link");
    assert!(Accounts::read(open()).expect("outside").passwd.is_empty());
    fs::write(root.path().join("etc/hostname"), "in:x:1:1::/:\n").expect("file");
    assert_eq!(Accounts::read(open()).expect("inside").passwd, "in:x:1:1::/:\n");
    fs::create_dir(etc.join("group")).expect("directory");
    assert_eq!(Accounts::read(open()).expect_err("a directory").kind, ErrorKind::InvalidArgument);
    fs::remove_dir(etc.join("group")).expect("remove");
    let long = fs::File::create(etc.join("group")).expect("file");
    long.set_len(SIZE_MAX as u64 + 1).expect("long");
    assert_eq!(Accounts::read(open()).expect_err("long").kind, ErrorKind::InvalidArgument);
}
