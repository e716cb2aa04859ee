//! Torture: threads create, delete, rename and switch namespaces and talk to the servers in them, and every answer must
//! come from the right one. It finds bugs of this crate and of the kernel. Needs root.
//!
//! `NETNS_TORTURE_SECONDS` is how long it takes (2 seconds if it is not set):
//! `NETNS_TORTURE_SECONDS=600 cargo test -p pinion-netns --release --test torture -- --nocapture`

use std::{
    env, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use netns::{ErrorKind, EventLoop, Interest, Namespace, NsId, PinDir, ThreadGuard, WatchEvent, WeakNamespace};
use testbed::{Namespaces, run_on_a_node};

/// Number of tenants at a time.
const TENANTS: usize = 24;
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80);

/// A tenant that clients may use; it can be deleted at any time.
#[derive(Clone)]
struct Tenant {
    id: NsId,
    weak: WeakNamespace,
}

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    wrong: AtomicU64,
    gone: AtomicU64,
    created: AtomicU64,
    renamed: AtomicU64,
    events: AtomicU64,
}

/// What the threads share: the name of a tenant is its index.
struct World {
    pins: PinDir,
    tenants: Vec<Mutex<Option<Tenant>>>,
    /// Listeners of new tenants, for the server.
    arrivals: Mutex<Vec<(NsId, std::net::TcpListener)>>,
    departures: Mutex<Vec<NsId>>,
    done: AtomicBool,
    counts: Counts,
}

fn seconds() -> u64 {
    env::var("NETNS_TORTURE_SECONDS").map_or(2, |text| text.parse().expect("NETNS_TORTURE_SECONDS is a number"))
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A small generator of pseudo-random numbers (xorshift), so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("fits")
    }
}

impl World {
    fn running(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    fn tenant(&self, index: usize) -> Option<Tenant> {
        self.tenants[index].lock().unwrap().clone()
    }

    /// Returns a reference that does not keep the tenant alive.
    fn reference(&self, index: usize, namespace: &Namespace) -> WeakNamespace {
        // By handle since Linux 6.18, else by the name, which other tenants have before and after.
        let by_path = || namespace.downgrade_at(&self.pins.path(&index.to_string()).unwrap()).unwrap();
        namespace.downgrade().unwrap_or_else(|_| by_path())
    }

    fn create(&self, index: usize) {
        let namespace = Namespace::create().unwrap();
        let id = namespace.id().unwrap();
        let listener = namespace.tcp_listener(ADDRESS).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.pins.pin(&index.to_string(), &namespace).unwrap();
        self.arrivals.lock().unwrap().push((id, listener));
        *self.tenants[index].lock().unwrap() = Some(Tenant { id, weak: self.reference(index, &namespace) });
        add(&self.counts.created);
    }

    fn delete(&self, index: usize) {
        let Some(tenant) = self.tenants[index].lock().unwrap().take() else { return };
        self.departures.lock().unwrap().push(tenant.id);
        self.pins.unpin(&index.to_string()).unwrap();
    }

    /// Exchanges the names of two tenants.
    fn rename(&self, first: usize, second: usize) {
        let (low, high) = (first.min(second), first.max(second));
        let (mut low_slot, mut high_slot) = (self.tenants[low].lock().unwrap(), self.tenants[high].lock().unwrap());
        let (Some(one), Some(two)) = (low_slot.as_ref(), high_slot.as_ref()) else { return };
        let (one, two) = (one.weak.upgrade().unwrap(), two.weak.upgrade().unwrap());
        for (name, namespace) in [(low, &two), (high, &one)] {
            self.pins.unpin(&name.to_string()).unwrap();
            self.pins.pin(&name.to_string(), namespace).unwrap();
        }
        let tenant = |index, namespace: &Namespace| {
            Some(Tenant { id: namespace.id().unwrap(), weak: self.reference(index, namespace) })
        };
        (*low_slot, *high_slot) = (tenant(low, &two), tenant(high, &one));
        add(&self.counts.renamed);
    }
}

/// Deletes, creates and renames tenants. Several of these threads share the tenants, each its own part.
fn churn(world: &World, part: usize, parts: usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (part as u64 + 1));
    let own: Vec<usize> = (0..TENANTS).filter(|index| index % parts == part).collect();
    while world.running() {
        let index = own[random.below(own.len())];
        match random.below(3) {
            0 => {
                let other = own[random.below(own.len())];
                if other != index {
                    world.rename(index, other);
                }
            }
            _ if world.tenant(index).is_some() => world.delete(index),
            _ => world.create(index),
        }
        if random.below(4) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Serves all tenants in one event loop: each connection is answered with the id of the tenant that it was accepted for.
fn serve(world: &World) {
    let mut events: EventLoop<std::net::TcpListener> = EventLoop::new().unwrap();
    let mut ready = Vec::new();
    while world.running() {
        for (id, listener) in world.arrivals.lock().unwrap().drain(..) {
            events.add(id, listener, Interest::Read).unwrap();
        }
        for id in world.departures.lock().unwrap().drain(..) {
            events.remove_namespace(id);
        }
        events.wait(&mut ready, Some(Duration::from_millis(1))).unwrap();
        for ready in &ready {
            let Some((id, listener)) = events.get_mut(ready.key) else { continue };
            while let Ok((mut connection, _)) = listener.accept() {
                let inside = syscall::namespace::socket_namespace_id(&connection).unwrap();
                if NsId(inside) != id {
                    add(&world.counts.wrong);
                }
                // The client may be gone.
                let _ = connection.write_all(&id.0.to_ne_bytes());
            }
        }
    }
}

/// Connects to tenants by their weak references, in one of three ways.
fn ask(world: &World, seed: u64) {
    let mut random = Random(seed);
    let guard = ThreadGuard::new().unwrap();
    // Tenants that were used before, most of which are gone by now.
    let mut earlier: Vec<Tenant> = Vec::new();
    while world.running() {
        let tenant = match (random.below(4), earlier.is_empty()) {
            (0, false) => earlier[random.below(earlier.len())].clone(),
            _ => match world.tenant(random.below(TENANTS)) {
                Some(tenant) => tenant,
                None => continue,
            },
        };
        if earlier.len() < 32 {
            earlier.push(tenant.clone());
        } else {
            earlier[random.below(32)] = tenant.clone();
        }
        let namespace = match tenant.weak.upgrade() {
            Ok(namespace) => namespace,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
                add(&world.counts.gone);
                continue;
            }
        };
        let stream = match random.below(3) {
            0 => namespace.tcp_stream(ADDRESS).ok(),
            1 => namespace.enter(|| TcpStream::connect(ADDRESS)).unwrap().ok(),
            _ => {
                guard.switch(&namespace).unwrap();
                let stream = TcpStream::connect(ADDRESS).ok();
                // Sometimes the thread stays, as one that handles many events of one tenant does.
                if random.below(2) == 0 {
                    guard.switch_back().unwrap();
                }
                stream
            }
        };
        // No listener anymore, or not yet.
        let Some(mut stream) = stream else { continue };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answer = [0; 8];
        // The listener was closed with the connection in its queue.
        if stream.read_exact(&mut answer).is_err() {
            continue;
        }
        add(if u64::from_ne_bytes(answer) == tenant.id.0 { &world.counts.answers } else { &world.counts.wrong });
    }
}

/// Follows the pins, and compares each with what its name leads to.
fn follow(world: &World) {
    let mut watch = world.pins.watch().unwrap();
    let mut known = std::collections::HashMap::new();
    while world.running() {
        match watch.next_within(Duration::from_millis(20)).unwrap() {
            Some(WatchEvent::Ready { name, id }) => {
                if known.insert(name, id).is_some_and(|before| before == id) {
                    add(&world.counts.wrong);
                }
            }
            Some(WatchEvent::Gone { name, id }) => {
                if known.remove(&name) != id {
                    add(&world.counts.wrong);
                }
            }
            Some(WatchEvent::Rescanned) | None => continue,
            Some(event) => panic!("{event:?}: pins of this crate are ready when they are visible"),
        }
        add(&world.counts.events);
    }
}

#[test]
fn every_answer_is_from_the_right_tenant() {
    if let Some(run) = run_on_a_node("every_answer_is_from_the_right_tenant", Namespaces::NETWORK) {
        print!("{}", run.passed());
        return;
    }
    let pins = PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns")).unwrap();
    let world = World {
        pins,
        tenants: (0..TENANTS).map(|_| Mutex::default()).collect(),
        arrivals: Mutex::default(),
        departures: Mutex::default(),
        done: AtomicBool::new(false),
        counts: Counts::default(),
    };
    (0..TENANTS).for_each(|index| world.create(index));
    let (begin, ours) = (Instant::now(), fs::read_link("/proc/self/ns/net").unwrap());
    thread::scope(|scope| {
        let (world, ours) = (&world, &ours);
        for part in 0..2 {
            scope.spawn(move || churn(world, part, 2));
        }
        for seed in 1..=3 {
            scope.spawn(move || {
                ask(world, seed);
                assert_eq!(&fs::read_link("/proc/thread-self/ns/net").unwrap(), ours, "the thread returned");
            });
        }
        scope.spawn(|| serve(world));
        scope.spawn(|| follow(world));
        thread::sleep(Duration::from_secs(seconds()));
        world.done.store(true, Ordering::Relaxed);
    });
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &world.counts;
    println!(
        "{:.0} s: {} answers, {} wrong; {} namespaces created, {} exchanges of names, {} gone when used, {} events",
        begin.elapsed().as_secs_f64(),
        read(&counts.answers),
        read(&counts.wrong),
        read(&counts.created),
        read(&counts.renamed),
        read(&counts.gone),
        read(&counts.events),
    );
    assert_eq!(read(&counts.wrong), 0);
    // Few enough for a machine that is busy with other tests.
    assert!(read(&counts.answers) > 100 && read(&counts.created) > 20 && read(&counts.events) > 20);
    assert!(read(&counts.gone) > 0, "references to namespaces that are gone are used, too");
    (0..TENANTS).for_each(|index| world.delete(index));
    assert_eq!(world.pins.list().unwrap().len(), 0);
}

/// 5000 namespaces one after the other under one name, with readers that hold references to earlier ones.
#[test]
fn a_name_that_is_used_again_is_never_taken_for_the_old_namespace() {
    if let Some(run) =
        run_on_a_node("a_name_that_is_used_again_is_never_taken_for_the_old_namespace", Namespaces::NETWORK)
    {
        print!("{}", run.passed());
        return;
    }
    let pins = PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns")).unwrap();
    let rounds = if seconds() > 2 { 5000 } else { 300 };
    let (latest, done): (Mutex<Vec<WeakNamespace>>, _) = (Mutex::default(), AtomicBool::new(false));
    let (upgraded, gone) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let references = latest.lock().unwrap().clone();
                    for weak in references {
                        match weak.upgrade() {
                            Ok(namespace) => {
                                assert_eq!(namespace.id().unwrap(), weak.id());
                                add(&upgraded);
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
                                add(&gone);
                            }
                        }
                    }
                }
            });
        }
        let mut ids = std::collections::HashSet::new();
        for _ in 0..rounds {
            let namespace = Namespace::create().unwrap();
            let path = pins.pin("name", &namespace).unwrap();
            assert!(ids.insert(namespace.id().unwrap()), "an id was used twice");
            {
                let mut latest = latest.lock().unwrap();
                latest.push(namespace.downgrade_at(&path).unwrap());
                latest.extend(namespace.downgrade());
                let surplus = latest.len().saturating_sub(8);
                latest.drain(..surplus);
            }
            drop(namespace);
            pins.unpin("name").unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{rounds} namespaces: {upgraded:?} references upgraded, {gone:?} gone");
    assert!(gone.into_inner() > 0 && upgraded.into_inner() > 0);
}
