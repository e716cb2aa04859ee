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
        assert_eq!(watch.next_within(LONG).unwrap_err().operation(), Some("read"));
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
        rustix::mount::unmount("/run/netns/half", rustix::mount::UnmountFlags::DETACH).unwrap();
        if rustix_reports_unmounts() {
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
fn rustix_reports_unmounts() -> bool {
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
        let error = PinGroup::open(Path::new("/run/netns/.proc"), public).unwrap_err();
        assert!(error.to_string().contains("other than tmpfs"), "{error}");
        rustix::mount::unmount("/run/netns/.proc", rustix::mount::UnmountFlags::empty()).unwrap();
    });
}
