//! Tests on the real kernel. They need root.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use netns::{Error, Identity, Namespace, PinDir, PodNamespaces, Pool};
use testbed::{Namespaces, on_a_node};

const STORE: &str = "/run/netns/.store";
const PUBLIC: &str = "/run/netns";

fn pins() -> PinDir {
    PinDir::open(Path::new(STORE), Path::new(PUBLIC)).unwrap()
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter(|line| line.contains(STORE)).count()
}

fn current_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
}

#[test]
fn a_pin_is_listed_opened_and_removed() {
    on_a_node(Namespaces::NETWORK, || {
        let before = current_namespace();
        let (pins, namespace) = (pins(), Namespace::create().unwrap());
        let path = pins.pin("blue", &namespace).unwrap();
        assert_eq!(path, Path::new("/run/netns/blue"));
        let id = namespace.id().unwrap();
        assert_eq!(Namespace::open(&path).unwrap().id().unwrap(), id);
        assert!(matches!(pins.pin("blue", &namespace), Err(Error::Exists(name)) if name == "blue"));
        drop(namespace);
        assert_eq!(pins.get("blue").unwrap().id().unwrap(), id, "the pin keeps the namespace alive");
        assert_eq!((pins.list().unwrap(), mounts()), (vec!["blue".to_owned()], 1));
        pins.unpin("blue").unwrap();
        pins.unpin("blue").unwrap();
        assert!(matches!(pins.get("blue"), Err(Error::NotFound(_))));
        assert_eq!((pins.list().unwrap().len(), mounts()), (0, 0));
        assert_eq!(current_namespace(), before, "the caller's namespace has not changed");
    });
}

#[test]
fn leftovers_of_a_crash_are_removed() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, namespace) = (pins(), Namespace::create().unwrap());
        // Leftovers of two moments: before the mount, and before the publication.
        fs::write(Path::new(STORE).join("early"), "").unwrap();
        pins.pin("late", &namespace).unwrap();
        fs::remove_file("/run/netns/late").unwrap();
        assert_eq!(pins.list().unwrap(), ["early", "late"]);
        for name in ["early", "late"] {
            pins.pin(name, &namespace).unwrap();
            assert_eq!(Namespace::open(&pins.path(name).unwrap()).unwrap().id().unwrap(), namespace.id().unwrap());
            pins.unpin(name).unwrap();
        }
        assert_eq!((pins.list().unwrap().len(), mounts()), (0, 0));
        assert_eq!(fs::read_dir(PUBLIC).unwrap().count(), 1, "only the store remains");
        fs::remove_dir(STORE).unwrap();
        pins.unpin("late").expect("nothing is pinned without a store");
        assert!(pins.pin("late", &namespace).unwrap_err().to_string().starts_with("create pin "));
    });
}

/// A link that cannot be read, here because of too many links in its path, may be ours: unpin must fail.
#[test]
fn unpin_fails_if_a_link_cannot_be_read() {
    on_a_node(Namespaces::NETWORK, || {
        let (store, public, moved) = (Path::new("/run/store"), Path::new("/run/public"), Path::new("/run/moved"));
        let pins = PinDir::open(store, public).unwrap();
        pins.pin("blue", &Namespace::create().unwrap()).unwrap();
        fs::rename(public, moved).unwrap();
        std::os::unix::fs::symlink(public, public).unwrap();
        let error = pins.unpin("blue").expect_err("the link cannot be read").to_string();
        assert!(error.contains("/run/public/blue"), "{error}");
        assert!(pins.is_pinned("blue").expect("known"));
        assert!(!pins.is_pinned("green").expect("known"));
        fs::remove_file(public).unwrap();
        fs::rename(moved, public).unwrap();
        pins.unpin("blue").unwrap();
        assert_eq!((fs::read_dir(public).unwrap().count(), pins.list().unwrap().len()), (0, 0));
    });
}

#[test]
fn files_of_other_programs_are_not_removed() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, namespace) = (pins(), Namespace::create().unwrap());
        fs::write("/run/netns/theirs", "").unwrap();
        assert!(matches!(pins.pin("theirs", &namespace), Err(Error::Exists(_))));
        pins.unpin("theirs").unwrap();
        assert!(Path::new("/run/netns/theirs").exists());
        assert!(Namespace::open(Path::new("/run/netns/theirs")).is_err(), "a regular file is not a namespace");
        assert!(Namespace::open(Path::new("/proc/self/ns/uts")).is_err(), "a UTS namespace is not a network namespace");
    });
}

/// Each thread has a namespace of its own: one of them gets the name, and keeps it.
#[test]
fn one_of_many_pins_of_a_name_succeeds() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = pins();
        let namespaces: Vec<Namespace> = (0..4).map(|_| Namespace::create().unwrap()).collect();
        let barrier = std::sync::Barrier::new(namespaces.len());
        for _ in 0..50 {
            let outcomes: Vec<Result<_, Error>> = std::thread::scope(|scope| {
                let pin = |namespace| {
                    barrier.wait();
                    pins.pin("blue", namespace)
                };
                let threads: Vec<_> = namespaces.iter().map(|namespace| scope.spawn(move || pin(namespace))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let winners: Vec<usize> = (0..outcomes.len()).filter(|number| outcomes[*number].is_ok()).collect();
            assert!(
                outcomes.iter().flat_map(|it| it.as_ref().err()).all(|e| matches!(e, Error::Exists(_))),
                "{outcomes:?}"
            );
            assert_eq!((winners.len(), mounts()), (1, 1), "{outcomes:?}");
            let pinned = Namespace::open(Path::new("/run/netns/blue")).unwrap().id().unwrap();
            assert_eq!(pinned, namespaces[winners[0]].id().unwrap());
            pins.unpin("blue").unwrap();
        }
    });
}

#[test]
fn a_visible_pin_is_ready() {
    on_a_node(Namespaces::NETWORK, || {
        let (pins, namespace, done) = (pins(), Namespace::create().unwrap(), AtomicBool::new(false));
        let (id, seen) = (namespace.id().unwrap(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(PUBLIC).unwrap().flatten() {
                        if entry.file_name().to_string_lossy().starts_with('.') {
                            continue;
                        }
                        match Namespace::open(&entry.path()) {
                            Ok(namespace) => assert_eq!(namespace.id().unwrap(), id),
                            // The pin was removed between listing and opening, or between removing the link and the
                            // mount.
                            Err(_) => assert!(!entry.path().is_symlink(), "{entry:?} was visible and not ready"),
                        }
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            // On a busy machine the watcher may miss many rounds.
            let begin = Instant::now();
            for round in 0.. {
                pins.pin(&format!("n{round}"), &namespace).unwrap();
                pins.unpin(&format!("n{round}")).unwrap();
                if round >= 500 && seen.load(Ordering::Relaxed) >= 50 || begin.elapsed() > Duration::from_secs(20) {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(seen.load(Ordering::Relaxed) >= 50);
    });
}

#[test]
fn identities_are_unique() {
    on_a_node(Namespaces::NETWORK, || {
        let ids: HashSet<Identity> = (0..300).map(|_| Namespace::create().unwrap().identity().unwrap()).collect();
        assert_eq!(ids.len(), 300);
        let one = Namespace::create().unwrap();
        assert_eq!(one.try_clone().unwrap().identity().unwrap(), one.identity().unwrap());
    });
}

#[test]
fn one_process_listens_on_the_same_address_in_many_namespaces() {
    on_a_node(Namespaces::NETWORK, || {
        let all: Vec<Namespace> = (0..16).map(|_| Namespace::create().unwrap()).collect();
        let listen = || TcpListener::bind("127.0.0.1:8080").unwrap();
        let listeners: Vec<TcpListener> = all.iter().map(|namespace| namespace.enter(listen).unwrap()).collect();
        for (namespace, listener) in all.iter().zip(&listeners) {
            let client = namespace.enter(|| TcpStream::connect("127.0.0.1:8080").unwrap()).unwrap();
            assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
        }
        let panicked = all[0].enter(|| panic!("on purpose"));
        assert!(matches!(panicked, Err(Error::Panicked(message)) if message == "on purpose"));
        assert!(all[0].enter(|| ()).is_ok(), "a panic does not affect the next closure");
    });
}

#[test]
fn a_pool_hands_each_namespace_out_once() {
    on_a_node(Namespaces::NETWORK, || {
        let pool = Pool::new(4);
        let taken: Vec<Namespace> = (0..20).map(|_| pool.take().unwrap()).collect();
        let ids: HashSet<_> = taken.iter().map(|namespace| namespace.id().unwrap()).collect();
        assert_eq!(ids.len(), 20);
        while pool.ready() < 4 {
            std::thread::yield_now();
        }
        let up = |ns: &Namespace| ns.enter(|| TcpListener::bind("127.0.0.1:1").is_ok()).unwrap();
        assert!(up(&pool.take().unwrap()));
        assert_eq!(Pool::new(0).ready(), 0);
    });
}

#[test]
fn namespaces_of_a_pod_are_separate_from_the_nodes() {
    on_a_node(Namespaces::NETWORK, || {
        let host = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let before = host();
        let net = Some(Namespace::create().unwrap());
        let pod = PodNamespaces::create(net, true, Some("web-1")).unwrap();
        let settings =
            [("kernel.shmmni", "77"), ("net.ipv4.ip_unprivileged_port_start", "0"), ("fs.mqueue.msg_max", "11")];
        let sysctls: BTreeMap<_, _> = settings.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        pod.write_sysctls(&sysctls).unwrap();
        let read = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
        let paths =
            ["/proc/sys/kernel/hostname", "/proc/sys/kernel/shmmni", "/proc/sys/net/ipv4/ip_unprivileged_port_start"];
        assert_eq!(pod.enter(move || paths.map(read)).unwrap(), ["web-1", "77", "0"]);
        assert_eq!(host(), before);
        assert_ne!(read(paths[1]), "77");
        assert!(PodNamespaces::create(None, false, Some(&"x".repeat(65))).is_err());
    });
}

#[test]
fn sysctls_of_the_node_are_refused_before_any_is_written() {
    on_a_node(Namespaces::NETWORK, || {
        let pod = PodNamespaces::create(Some(Namespace::create().unwrap()), false, None).unwrap();
        let sysctls: BTreeMap<_, _> = [("net.ipv4.ip_unprivileged_port_start", "7"), ("vm.swappiness", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let error = pod.write_sysctls(&sysctls).unwrap_err().to_string();
        assert!(error.contains("vm.swappiness"), "{error}");
        let read = || fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
        assert_eq!(pod.enter(read).unwrap().trim(), "1024");
    });
}
