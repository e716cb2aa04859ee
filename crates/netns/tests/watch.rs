//! Watches and groups of pins on the real kernel. Need root.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use netns::{Namespace, NsId, PinDir, PinGroup, Watch, WatchEvent};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use testbed::{Namespaces, on_a_node, run};

const PUBLIC: &str = "/run/netns";
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);

fn pins() -> PinDir {
    PinDir::open(Path::new("/run/netns/.store"), Path::new(PUBLIC)).unwrap()
}

fn mounts(below: &str) -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter(|line| line.contains(below)).count()
}

fn ready(name: &str, id: NsId) -> WatchEvent {
    WatchEvent::Ready { name: name.into(), id }
}

fn gone(name: &str, id: NsId) -> WatchEvent {
    WatchEvent::Gone { name: name.into(), id: Some(id) }
}

#[test]
fn pins_are_reported_when_they_are_ready_and_when_they_are_gone() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = pins();
        let [first, second, third] = std::array::from_fn(|_| Namespace::create().unwrap());
        let [one, two, three] = [&first, &second, &third].map(|namespace| namespace.id().unwrap());
        pins.pin("old", &first).unwrap();
        let mut watch = pins.watch().unwrap();
        let mut next = || watch.next_within(LONG).unwrap().expect("an event");
        assert_eq!(next(), ready("old", one), "what exists is reported first");
        pins.pin("blue", &second).unwrap();
        assert_eq!(next(), ready("blue", two));
        pins.unpin("old").unwrap();
        assert_eq!(next(), gone("old", one));
        pins.unpin("blue").unwrap();
        pins.pin("blue", &third).unwrap();
        // Both at once or one after the other: the names are the same, the namespaces are not.
        assert_eq!([next(), next()], [gone("blue", two), ready("blue", three)]);
        assert_eq!(watch.next_within(SHORT).unwrap(), None);
        fs::remove_dir_all("/run/netns/none").unwrap_err();
        fs::rename(PUBLIC, "/run/moved").unwrap();
        // Another directory takes its place, with a pin of the same name.
        pins.pin("blue", &first).unwrap_err();
        let elsewhere = PinDir::open(Path::new("/run/store"), Path::new(PUBLIC)).unwrap();
        elsewhere.pin("blue", &first).unwrap();
        let mut next = || watch.next_within(LONG);
        assert_eq!(next().unwrap(), Some(gone("blue", three)), "first the pins are gone, then the directory");
        for _ in 0..2 {
            let error = next().unwrap_err();
            assert!(error.to_string().starts_with("watch /run/netns: No such file"), "{error}");
        }
    });
}

#[test]
fn a_removed_directory_is_reported_after_its_pins() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = PinDir::open(Path::new("/run/store"), Path::new(PUBLIC)).unwrap();
        let namespace = Namespace::create().unwrap();
        let id = namespace.id().unwrap();
        for name in ["red", "blue"] {
            pins.pin(name, &namespace).unwrap();
        }
        let mut watch = pins.watch().unwrap();
        let mut next = || watch.next_within(LONG).unwrap();
        assert_eq!([next(), next()], [Some(ready("blue", id)), Some(ready("red", id))]);
        fs::remove_dir_all(PUBLIC).unwrap();
        let mut seen = [next().unwrap(), next().unwrap()];
        seen.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(seen, [gone("blue", id), gone("red", id)]);
        watch.next_within(LONG).unwrap_err();
    });
}

/// At the limit of descriptors no pin can be looked at.
#[test]
fn a_momentary_error_loses_no_change() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, namespace) = (pins(), Namespace::create().unwrap());
        let id = namespace.id().unwrap();
        let mut watch = pins.watch().unwrap();
        for name in ["one", "two", "three"] {
            pins.pin(name, &namespace).unwrap();
        }
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        let errors = [watch.try_next().unwrap_err(), watch.try_next().unwrap_err()];
        let recheck = watch.recheck_within();
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(errors.iter().all(|error| error.to_string().contains("Too many open files")), "{errors:?}");
        assert!(recheck.is_some(), "the descriptor does not become readable again");
        for name in ["one", "two", "three"] {
            assert_eq!(watch.next_within(SHORT).unwrap(), Some(ready(name, id)));
        }
    });
}

/// The mount behind two names is unmounted.
#[test]
fn every_name_of_a_mount_is_gone_with_it() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, namespace) = (pins(), Namespace::create().unwrap());
        let id = namespace.id().unwrap();
        pins.pin("blue", &namespace).unwrap();
        std::os::unix::fs::symlink(".store/blue", "/run/netns/alias").unwrap();
        let mut watch = pins.watch().unwrap();
        let mut next = || watch.next_within(LONG).unwrap();
        assert_eq!([next(), next()], [Some(ready("alias", id)), Some(ready("blue", id))]);
        unmount("/run/netns/.store/blue", UnmountFlags::DETACH).unwrap();
        if reports_unmounts() {
            assert_eq!([next(), next()], [Some(gone("alias", id)), Some(gone("blue", id))]);
        }
    });
}

#[test]
fn a_wait_without_end_is_possible() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, namespace) = (pins(), Namespace::create().unwrap());
        let mut watch = pins.watch().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT);
                pins.pin("blue", &namespace).unwrap();
            });
            let event = watch.next_within(Duration::MAX).unwrap();
            assert_eq!(event, Some(ready("blue", namespace.id().unwrap())));
        });
    });
}

/// A program that opens a FIFO to write to it waits for a reader, which a watch must not be.
#[test]
fn only_namespaces_are_opened() {
    on_a_node(Namespaces::NETWORK, || {
        fs::create_dir_all(PUBLIC).unwrap();
        let fifo = Path::new("/run/netns/fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let is_opened = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                fs::File::options().write(true).open(fifo).unwrap();
                is_opened.store(true, Ordering::Relaxed);
            });
            thread::sleep(SHORT);
            let mut watch = Watch::directory(Path::new(PUBLIC)).unwrap();
            assert_eq!(watch.try_next().unwrap(), Some(WatchEvent::Created { name: "fifo".into() }));
            let error = Namespace::open(fifo).unwrap_err().to_string();
            assert_eq!(error, "open network namespace /run/netns/fifo: not a network namespace");
            thread::sleep(SHORT);
            assert!(!is_opened.load(Ordering::Relaxed));
            fs::File::open(fifo).unwrap();
        });
    });
}

/// ip(8) creates a file first and mounts the namespace on it afterwards.
#[test]
fn pins_of_other_programs_are_ready_when_they_are_mounted() {
    on_a_node(Namespaces::NETWORK, || {
        fs::create_dir_all(PUBLIC).unwrap();
        let mut watch = Watch::directory(Path::new(PUBLIC)).unwrap();
        fs::write("/run/netns/half", "").unwrap();
        let created = WatchEvent::Created { name: "half".into() };
        assert_eq!(watch.next_within(LONG).unwrap(), Some(created));
        assert_eq!(watch.next_within(SHORT).unwrap(), None);
        let namespace = Namespace::create().unwrap();
        let id = namespace.id().unwrap();
        let source =
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&namespace)));
        rustix::mount::mount_bind(source.as_str(), "/run/netns/half").unwrap();
        assert_eq!(watch.next_within(LONG).unwrap(), Some(ready("half", id)));
        unmount("/run/netns/half", UnmountFlags::DETACH).unwrap();
        if reports_unmounts() {
            assert_eq!(watch.next_within(LONG).unwrap(), Some(gone("half", id)));
            fs::remove_file("/run/netns/half").unwrap();
        } else {
            fs::remove_file("/run/netns/half").unwrap();
            assert_eq!(watch.next_within(LONG).unwrap(), Some(gone("half", id)));
        }
        run("ip", &["netns", "add", "by-ip"]);
        let mut event = watch.next_within(LONG).unwrap();
        if matches!(event, Some(WatchEvent::Created { .. })) {
            event = watch.next_within(LONG).unwrap();
        }
        let Some(WatchEvent::Ready { name, id }) = event else { panic!("{event:?}") };
        assert_eq!(name, "by-ip");
        run("ip", &["netns", "delete", "by-ip"]);
        assert_eq!(watch.next_within(LONG).unwrap(), Some(gone("by-ip", id)));
        assert_eq!(watch.next_within(SHORT).unwrap(), None);
    });
}

/// Reports whether the kernel has `FAN_REPORT_MNT` (Linux 6.15).
fn reports_unmounts() -> bool {
    syscall::mount_watch::MountWatch::of_this_thread().is_ok()
}

/// More changes than the queue of inotify has room for: what the watch reports at the end is what is there.
#[test]
fn a_full_queue_costs_a_scan_and_loses_no_pin() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = pins();
        let namespaces: Vec<Namespace> = (0..4).map(|_| Namespace::create().unwrap()).collect();
        let mut watch = pins.watch().unwrap();
        for round in 0..6000 {
            // Three events of inotify each.
            let name = format!("/run/netns/file-{}", round % 50);
            fs::write(&name, "").unwrap();
            fs::rename(&name, "/run/netns/other").unwrap();
        }
        for (number, namespace) in namespaces.iter().enumerate() {
            pins.pin(&format!("pin-{number}"), namespace).unwrap();
        }
        let (mut state, mut rescanned) = (HashMap::new(), 0);
        while let Some(event) = watch.next_within(SHORT).unwrap() {
            match event {
                WatchEvent::Ready { name, id } => drop(state.insert(name, id)),
                WatchEvent::Gone { name, .. } => drop(state.remove(&name)),
                WatchEvent::Created { .. } => {}
                WatchEvent::Rescanned => rescanned += 1,
            }
        }
        assert!(rescanned > 0, "18000 events are more than fit");
        let expected: HashMap<String, NsId> = namespaces
            .iter()
            .enumerate()
            .map(|(number, namespace)| (format!("pin-{number}"), namespace.id().unwrap()))
            .collect();
        assert_eq!(state, expected);
    });
}

/// A pin is reported when it can be entered, with the identity that it has, and each one is reported as gone.
#[test]
fn a_watcher_sees_no_pin_that_is_not_ready() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, done) = (pins(), AtomicBool::new(false));
        let mut watch = pins.watch().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..300 {
                    let (name, namespace) = (format!("pin-{}", round % 7), Namespace::create().unwrap());
                    pins.pin(&name, &namespace).unwrap();
                    if round % 2 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    pins.unpin(&name).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            let (mut state, mut seen) = (HashMap::new(), 0);
            loop {
                match watch.next_within(SHORT).unwrap() {
                    Some(WatchEvent::Ready { name, id }) => {
                        assert_eq!(state.insert(name.clone(), id), None, "{name} was gone before");
                        seen += 1;
                    }
                    Some(WatchEvent::Gone { name, id }) => assert_eq!(state.remove(&name), id, "{name}"),
                    Some(event) => panic!("{event:?}"),
                    None if done.load(Ordering::Relaxed) => break,
                    None => {}
                }
            }
            assert!(state.is_empty() && seen > 50, "{seen} of 300 seen");
        });
    });
}

#[test]
fn a_group_is_removed_at_once() {
    on_a_node(Namespaces::NETWORK, || {
        let (store, public) = (Path::new("/run/netns/.tenants"), Path::new(PUBLIC));
        let ours = pins();
        ours.pin("other", &Namespace::create().unwrap()).unwrap();
        let group = PinGroup::open(store, public).unwrap();
        let mut watch = group.pins().watch().unwrap();
        assert!(matches!(watch.try_next().unwrap(), Some(WatchEvent::Ready { name, .. }) if name == "other"));
        for (number, namespace) in Namespace::create_many(50, 0).unwrap().enumerate() {
            group.pins().pin(&format!("tenant-{number}"), &namespace.unwrap()).unwrap();
        }
        // As after a restart.
        drop(group);
        let group = PinGroup::open(store, public).unwrap();
        assert_eq!((group.pins().list().unwrap().len(), mounts(".tenants")), (50, 51));
        assert_eq!(group.delete().unwrap(), 50);
        assert_eq!((mounts(".tenants"), store.exists()), (0, false));
        let left: Vec<_> = fs::read_dir(PUBLIC).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!((left.len(), ours.list().unwrap()), (2, vec!["other".to_owned()]), "{left:?}");
        let (mut ready, mut gone) = (0, 0);
        while let Some(event) = watch.next_within(SHORT).unwrap() {
            match event {
                WatchEvent::Ready { .. } => ready += 1,
                WatchEvent::Gone { .. } => gone += 1,
                event => panic!("{event:?}"),
            }
        }
        // The watch looked at them after they were gone, or before: it never reports one half.
        assert_eq!(ready, gone);
        // A store with something else mounted on it is not touched.
        fs::create_dir("/run/netns/.proc").unwrap();
        rustix::mount::mount("proc", "/run/netns/.proc", "proc", rustix::mount::MountFlags::empty(), None).unwrap();
        let refused = || PinGroup::open(Path::new("/run/netns/.proc"), public).unwrap_err().to_string();
        assert!(refused().contains("of another file system"), "{}", refused());
        unmount("/run/netns/.proc", UnmountFlags::empty()).unwrap();
        // A tmpfs of another program, too.
        rustix::mount::mount("tmpfs", "/run/netns/.proc", "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        assert!(refused().contains("of another file system"), "{}", refused());
        unmount("/run/netns/.proc", UnmountFlags::empty()).unwrap();
    });
}
