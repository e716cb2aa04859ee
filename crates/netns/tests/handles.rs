//! Weak references, switches of the calling thread, and what is opened in a namespace, on the real kernel. Need root.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, UdpSocket},
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::Duration,
};

use netns::{Error, ErrorKind, Memory, Namespace, PinDir, SysctlDir, ThreadGuard};
use testbed::{Namespaces, on_a_node, wait_until};

const LIMIT: Duration = Duration::from_secs(10);

fn current_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[test]
fn a_weak_reference_never_leads_to_another_namespace() {
    on_a_node(Namespaces::NETWORK, || {
        let pins = PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns")).unwrap();
        let first = Namespace::create().unwrap();
        let path = pins.pin("blue", &first).unwrap();
        let (by_path, id) = (first.downgrade_at(&path).unwrap(), first.id().unwrap());
        // By handle since Linux 6.18.
        let by_handle = first.downgrade().ok();
        drop(first);
        for weak in by_handle.iter().chain([&by_path]) {
            assert_eq!((weak.upgrade().unwrap().id().unwrap(), weak.id()), (id, id));
            assert_ne!(weak.enter(current_namespace).unwrap(), current_namespace());
        }
        pins.unpin("blue").unwrap();
        // The kernel destroys the namespace soon after its last reference.
        if let Some(weak) = &by_handle {
            wait_until("the namespace is gone", LIMIT, || weak.upgrade().is_err());
        }
        // A namespace that has the name of the old one, and perhaps its inode number.
        pins.pin("blue", &Namespace::create().unwrap()).unwrap();
        for weak in by_handle.iter().chain([&by_path]) {
            let error = weak.upgrade().unwrap_err();
            assert!(matches!(error, Error::Gone(gone) if gone == id), "{error}");
            assert_eq!(weak.enter(|| ()).unwrap_err().kind(), ErrorKind::Gone);
        }
        pins.unpin("blue").unwrap();
        assert_eq!(by_path.upgrade().unwrap_err().kind(), ErrorKind::Gone, "the path does not exist");
        fs::write("/run/netns/blue", "").unwrap();
        assert_eq!(by_path.upgrade().unwrap_err().kind(), ErrorKind::Gone, "a regular file");
    });
}

#[test]
fn a_weak_reference_to_a_process_is_gone_with_it() {
    on_a_node(Namespaces::NETWORK, || {
        let mut child = std::process::Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        let ours = current_namespace();
        wait_until("the process is in its namespace", LIMIT, || fs::metadata(&path).is_ok_and(|it| it.ino() != ours));
        let weak = Namespace::open(Path::new(&path)).unwrap().downgrade_at(Path::new(&path)).unwrap();
        weak.upgrade().unwrap();
        child.kill().unwrap();
        // A zombie has no namespaces.
        wait_until("the namespace is gone", LIMIT, || weak.upgrade().is_err());
        assert_eq!(weak.upgrade().unwrap_err().kind(), ErrorKind::Gone);
        child.wait().unwrap();
        assert_eq!(weak.upgrade().unwrap_err().kind(), ErrorKind::Gone);
    });
}

#[test]
fn a_guard_switches_its_thread_and_returns_it() {
    on_a_node(Namespaces::NETWORK, || {
        let before = current_namespace();
        let (red, blue) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        let guard = ThreadGuard::new().unwrap();
        assert!(matches!(ThreadGuard::new(), Err(Error::Poisoned(_))), "one guard a thread");
        assert!(guard.switch(&red).unwrap());
        assert!(!guard.switch(&red.try_clone().unwrap()).unwrap(), "it is there already");
        assert_eq!(guard.current(), red.id().unwrap());
        let in_red = current_namespace();
        assert!(guard.switch(&blue).unwrap());
        assert!(in_red != before && current_namespace() != before && current_namespace() != in_red);
        thread::scope(|scope| {
            let other = scope.spawn(|| (current_namespace(), ThreadGuard::new().is_ok()));
            // A new thread starts in the namespace of the thread that started it.
            assert_eq!(other.join().unwrap(), (current_namespace(), true));
        });
        assert!(guard.switch_back().unwrap() && !guard.switch_back().unwrap());
        assert_eq!((current_namespace(), guard.current()), (before, guard.original()));
        guard.switch(&red).unwrap();
        drop(guard);
        assert_eq!((current_namespace(), ThreadGuard::is_thread_poisoned()), (before, false));
        let guard = ThreadGuard::new().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            guard.switch(&red).unwrap();
            panic!("as programs do");
        }));
        assert!(panicked.is_err());
        assert_eq!(current_namespace(), before, "a panic returns the thread, too");
    });
}

/// More helper threads are started from within a namespace than are idle: all of them leave it.
#[test]
fn helper_threads_do_not_keep_the_namespace_of_the_thread_that_started_them() {
    on_a_node(Namespaces::NETWORK, || {
        let guard = ThreadGuard::new().unwrap();
        let (red, blue) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        let weak = red.downgrade().ok();
        guard.switch(&red).unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| blue.enter(|| thread::sleep(Duration::from_millis(50))).unwrap());
            }
        });
        // In a helper thread, too.
        red.enter({
            let blue = blue.try_clone().unwrap();
            move || blue.enter(|| ()).unwrap()
        })
        .unwrap();
        drop((guard, red));
        if let Some(weak) = weak {
            wait_until("the namespace is gone", LIMIT, || weak.upgrade().is_err());
        }
    });
}

/// A thread that may not return to its namespace: it gave up the privilege.
#[test]
fn a_thread_that_cannot_return_is_poisoned() {
    on_a_node(Namespaces::NETWORK, || {
        let red = Namespace::create().unwrap();
        red.id().unwrap();
        thread::scope(|scope| {
            let lost = scope.spawn(|| {
                let guard = ThreadGuard::new().unwrap();
                guard.switch(&red).unwrap();
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                drop(guard);
                (ThreadGuard::is_thread_poisoned(), ThreadGuard::new().unwrap_err().to_string())
            });
            let (poisoned, error) = lost.join().unwrap();
            assert!(poisoned && error.contains("could not return"), "{error}");
        });
        assert!(!ThreadGuard::is_thread_poisoned());
    });
}

#[test]
fn sockets_are_opened_in_a_namespace_and_used_from_outside() {
    on_a_node(Namespaces::NETWORK, || {
        let before = current_namespace();
        let namespaces: Vec<Namespace> = (0..3).map(|_| Namespace::create().unwrap()).collect();
        let listeners: Vec<_> = namespaces.iter().map(|ns| ns.tcp_listener(loopback(80)).unwrap()).collect();
        for (number, namespace) in namespaces.iter().enumerate() {
            let mut client = namespace.tcp_stream(loopback(80)).unwrap();
            let (mut server, _) = listeners[number].accept().unwrap();
            server.write_all(&[number as u8]).unwrap();
            let mut answer = [255];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(usize::from(answer[0]), number);
        }
        let again = namespaces[0].tcp_listener(loopback(80)).unwrap_err();
        assert!(again.to_string().starts_with("listen on 127.0.0.1:80: "), "{again}");
        let receivers: Vec<UdpSocket> = namespaces.iter().map(|ns| ns.udp_socket(loopback(53)).unwrap()).collect();
        let sender = namespaces[1].udp_socket(loopback(0)).unwrap();
        sender.send_to(b"x", loopback(53)).unwrap();
        receivers[1].recv(&mut [0]).unwrap();
        for receiver in [&receivers[0], &receivers[2]] {
            receiver.set_nonblocking(true).unwrap();
            assert_eq!(receiver.recv(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        }
        let refused = Namespace::create().unwrap().tcp_stream(loopback(80)).unwrap_err();
        assert!(refused.to_string().starts_with("connect to 127.0.0.1:80: "), "{refused}");
        assert_eq!(current_namespace(), before);
    });
}

/// rtnetlink answers for the namespace of its socket, whichever thread asks.
#[test]
fn netlink_sockets_belong_to_their_namespace() {
    on_a_node(Namespaces::NETWORK, || {
        let (with, without) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        with.enter(|| testbed::run("ip", &["link", "add", "tenant0", "type", "bridge"])).unwrap();
        let links = |namespace: &Namespace| {
            let socket = namespace.netlink(0).unwrap();
            // RTM_GETLINK with NLM_F_REQUEST | NLM_F_DUMP, and an empty ifinfomsg.
            let mut request = Vec::new();
            request.extend(32u32.to_ne_bytes());
            request.extend(18u16.to_ne_bytes());
            request.extend(0x301u16.to_ne_bytes());
            request.extend([0; 24]);
            rustix::net::send(&socket, &request, rustix::net::SendFlags::empty()).unwrap();
            let mut answer = vec![0; 32768];
            let (length, _) =
                rustix::net::recv(&socket, answer.as_mut_slice(), rustix::net::RecvFlags::empty()).unwrap();
            answer[..length].windows(7).any(|part| part == b"tenant0")
        };
        assert_eq!((links(&with), links(&without)), (true, false));
    });
}

#[test]
fn sysctls_are_read_and_written_from_outside() {
    on_a_node(Namespaces::NETWORK, || {
        let (red, blue) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        let open = |namespace| SysctlDir::open(namespace, "ipv4").unwrap();
        let (in_red, in_blue) = (open(&red), open(&blue));
        let ours = || fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl").unwrap();
        let before = ours();
        in_red.write("ip_default_ttl", "77").unwrap();
        in_blue.write("ip_default_ttl", "78").unwrap();
        assert_eq!(in_red.read("ip_default_ttl").unwrap(), "77");
        assert_eq!(in_blue.read("ip_default_ttl").unwrap(), "78");
        assert_eq!(ours(), before);
        let core = SysctlDir::open(&red, "core").unwrap();
        core.write("somaxconn", "99").unwrap();
        assert_eq!(core.read("somaxconn").unwrap(), "99");
        assert_ne!(fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim(), "99");
        let all = SysctlDir::open(&red, "ipv6/conf").unwrap();
        all.write("lo/disable_ipv6", "1").unwrap();
        assert_eq!(
            (all.read("lo/disable_ipv6").unwrap(), in_red.read("conf/lo/forwarding").unwrap()),
            ("1".into(), "0".into())
        );
        for bad in ["", "..", "../core", "/ipv4", "conf/../../core", "a\0b", "."] {
            assert_eq!(in_red.read(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
            assert_eq!(SysctlDir::open(&red, bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
        let error = in_red.write("ip_default_ttl", "9999").unwrap_err();
        assert!(error.to_string().starts_with("write /proc/sys/net/ipv4/ip_default_ttl: "), "{error}");
        drop(red);
        wait_until("the sysctls are gone with the namespace", LIMIT, || in_red.read("ip_default_ttl").is_err());
        assert_eq!(in_blue.read("ip_default_ttl").unwrap(), "78");
    });
}

#[test]
fn many_namespaces_are_created_while_they_are_taken() {
    on_a_node(Namespaces::NETWORK, || {
        let before = Memory::now().unwrap();
        let many: Vec<Namespace> = Namespace::create_many(100, 0).unwrap().map(Result::unwrap).collect();
        let per_namespace = Memory::now().unwrap().per_namespace(&before, many.len());
        assert!((20_000..4_000_000).contains(&per_namespace), "{per_namespace} bytes per namespace");
        let mut ids: Vec<_> = many.iter().map(|namespace| namespace.id().unwrap()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 100);
        assert_eq!(Namespace::create_many(0, 0).unwrap().count(), 0);
        // What was not taken is dropped, and the threads end.
        let mut some = Namespace::create_many(1000, 0).unwrap();
        some.next().unwrap().unwrap();
        drop(some);
        let threads = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
            tasks
                .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|it| it == "netns-create\n"))
                .count()
        };
        wait_until("the threads have ended", LIMIT, || threads() == 0);
        let mut refused = Namespace::create_many(10, u64::MAX).unwrap();
        assert_eq!(refused.next().unwrap().unwrap_err().kind(), ErrorKind::Memory);
        assert!(refused.next().is_none());
    });
}
