//! Writes the metrics page: every value is read once.

use pod::{EXIT_REASONS, Engine, IMAGE_OUTCOMES, MONITOR_REQUESTS, NetworkMetrics, ObjectCounts};
use rustix::process::{Resource, getrlimit};
use telemetry::{Format, Page};

use super::{
    super::logging::{Control, LEVELS},
    Sources, catalogue as name,
    process::Process,
    runtime::Runtime,
};

/// Returns the whole page. Blocks for some reads of `/proc`; must be called within the runtime.
pub(super) fn scrape(sources: &Sources, format: Format) -> String {
    let engine = &sources.engine;
    let mut page = Page::new(format);
    let contract = format!("{}.{}", pod::MONITOR_CONTRACT.0, pod::MONITOR_CONTRACT.1);
    page.family(&name::BUILD).value(&[cri::RUNTIME_VERSION, "v1", &contract], 1u64);
    requests(&mut page);
    population(&mut page, engine.object_counts());
    ends(&mut page, engine);
    pool(&mut page, engine);
    network(&mut page, engine.network_metrics());
    monitor(&mut page, engine);
    pulls(&mut page, engine);
    store(&mut page, engine);
    sessions(&mut page, sources.streaming.counts());
    log(&mut page, &sources.log);
    runtime(&mut page);
    daemon_process(&mut page);
    page.finish()
}

/// Writes the metrics of requests. An RPC that was never called has a counter at zero, so that rates can be computed,
/// and no histogram.
fn requests(page: &mut Page) {
    let mut family = page.family(&name::RPC_IN_FLIGHT);
    for (service, rpc, metrics) in cri::rpc_metrics() {
        family.value(&[service, rpc], metrics.in_flight.get());
    }
    let mut family = page.family(&name::RPC_HANDLED);
    for (service, rpc, metrics) in cri::rpc_metrics() {
        for (n, (code, completed)) in cri::CODES.iter().zip(&metrics.completed).enumerate() {
            let count = completed.get();
            if n == 0 || count > 0 {
                family.value(&[service, rpc, code], count);
            }
        }
    }
    let mut family = page.family(&name::RPC_DURATION);
    for (service, rpc, metrics) in cri::rpc_metrics() {
        let snapshot = metrics.duration.read();
        if snapshot.count > 0 {
            family.histogram(&[service, rpc], &snapshot);
        }
    }
}

fn population(page: &mut Page, all: ObjectCounts) {
    page.family(&name::SANDBOXES)
        .value(&["making"], all.sandboxes_creating)
        .value(&["ready"], all.sandboxes_ready)
        .value(&["stopped"], all.sandboxes_stopped);
    page.family(&name::CONTAINERS)
        .value(&["making"], all.containers_creating)
        .value(&["created"], all.containers_created)
        .value(&["running"], all.containers_running)
        .value(&["exited"], all.containers_exited);
}

fn ends(page: &mut Page, engine: &Engine) {
    let metrics = engine.metrics();
    let mut family = page.family(&name::CONTAINERS_ENDED);
    for (reason, ended) in EXIT_REASONS.iter().zip(&metrics.exits) {
        family.value(&[reason], ended.get());
    }
    page.family(&name::LOG_DROPPED).value(&[], metrics.log_dropped.get());
}

fn pool(page: &mut Page, engine: &Engine) {
    let pool = engine.pool_metrics();
    page.family(&name::POOL_SIZE).value(&[], pool.size);
    page.family(&name::POOL_READY).value(&[], pool.ready);
    page.family(&name::POOL_TAKEN).value(&["ahead"], pool.warm).value(&["late"], pool.cold);
    page.family(&name::POOL_REFILLED).value(&[], pool.created);
    page.family(&name::POOL_FAILED).value(&[], pool.failed);
}

fn network(page: &mut Page, network: &NetworkMetrics) {
    page.family(&name::ATTACH).histogram(&[], &network.attach_duration.read());
    page.family(&name::ATTACH_FAILED).value(&[], network.attach_failed.get());
    page.family(&name::DETACH).histogram(&[], &network.detach_duration.read());
    page.family(&name::DETACH_FAILED).value(&[], network.detach_failed.get());
    page.family(&name::PLUGINS_RUNNING).value(&[], network.plugins_running.get());
    page.family(&name::PLUGIN).histogram(&[], &network.plugin_duration.read());
    page.family(&name::PLUGIN_FAILED).value(&[], network.plugin_failed.get());
}

fn monitor(page: &mut Page, engine: &Engine) {
    let (metrics, identity) = (engine.monitor_metrics(), engine.monitor_identity());
    page.family(&name::MONITOR_UP).value(&[], identity.is_some());
    page.family(&name::MONITOR_RESTORED).value(&[], metrics.restored.get());
    let mut family = page.family(&name::MONITOR_REQUESTS);
    for (request, count) in MONITOR_REQUESTS.iter().zip(&metrics.requests) {
        family.value(&[request], count.get());
    }
    page.family(&name::MONITOR_WAITING).value(&[], metrics.waiting.get());
    page.family(&name::MONITOR_UNANSWERED).value(&[], metrics.unanswered.get());
    page.family(&name::MONITOR_ROUND_TRIP).histogram(&[], &metrics.round_trip.read());
    let silence = engine.silence();
    page.family(&name::MONITOR_SILENT).value(&[], silence.monitor.as_secs());
    page.family(&name::DATA_DISK_SILENT).value(&[], silence.data_disk.as_secs());
    page.family(&name::LOG_WRITERS_STUCK).value(&[], silence.log_writers);
    let process = identity.and_then(|identity| Process::read(identity.pid)).unwrap_or_default();
    page.family(&name::MONITOR_CPU).value(&[], process.cpu_seconds);
    page.family(&name::MONITOR_MEMORY).value(&[], process.resident_bytes);
    page.family(&name::MONITOR_FDS).value(&[], process.open_fds);
}

fn pulls(page: &mut Page, engine: &Engine) {
    let metrics = engine.images().metrics();
    let mut family = page.family(&name::PULLS);
    for (outcome, count) in IMAGE_OUTCOMES.iter().zip(&metrics.pulls) {
        family.value(&[outcome], count.get());
    }
    page.family(&name::PULLS_RUNNING).value(&[], metrics.pulls_running.get());
    page.family(&name::PULL).histogram(&[], &metrics.pull_duration.read());
    page.family(&name::FETCHED).value(&[], metrics.fetched_bytes.get());
    page.family(&name::UNPACK).histogram(&[], &metrics.unpack_duration.read());
    page.family(&name::COLLECTED).value(&[], metrics.layers_collected.get());
}

fn store(page: &mut Page, engine: &Engine) {
    let store = engine.images().totals();
    page.family(&name::IMAGES).value(&[], store.images);
    page.family(&name::LAYERS).value(&[], store.layers);
    page.family(&name::SNAPSHOTS).value(&[], store.snapshots);
    page.family(&name::STORE_BYTES)
        .value(&["layers"], store.layer_bytes)
        .value(&["blobs"], store.blob_bytes)
        .value(&["snapshots"], store.snapshot_bytes);
    page.family(&name::TRASH).value(&[], store.trash);
}

fn sessions(page: &mut Page, counts: cri::SessionCounts) {
    let kinds = [("exec", counts.exec), ("attach", counts.attach), ("port_forward", counts.port_forward)];
    let mut family = page.family(&name::SESSIONS);
    for (kind, counts) in kinds {
        family.value(&[kind], counts.open);
    }
    let mut family = page.family(&name::SESSIONS_STARTED);
    for (kind, counts) in kinds {
        family.value(&[kind], counts.started);
    }
}

fn log(page: &mut Page, log: &Control) {
    let metrics = log.metrics();
    let mut family = page.family(&name::LOG_LINES);
    for (level, lines) in LEVELS.iter().zip(&metrics.lines) {
        family.value(&[level], lines.get());
    }
    page.family(&name::LOG_LEFT_OUT).value(&[], metrics.left_out.get());
    page.family(&name::LOG_DROPPED_LINES).value(&[], log.dropped());
    let spans = log.traces().metrics();
    page.family(&name::SPANS)
        .value(&["exported"], spans.exported.get())
        .value(&["dropped"], spans.dropped.get())
        .value(&["failed"], spans.failed.get());
    page.family(&name::SPANS_QUEUED).value(&[], spans.queued.get());
}

fn runtime(page: &mut Page) {
    let runtime = Runtime::read();
    page.family(&name::WORKERS).value(&[], runtime.workers);
    page.family(&name::BLOCKING).value(&[], runtime.blocking);
    page.family(&name::TASKS).value(&[], runtime.tasks);
    page.family(&name::QUEUE).value(&[], runtime.queue);
    page.family(&name::BUSY).value(&[], runtime.busy_seconds);
}

fn daemon_process(page: &mut Page) {
    let process = Process::read(std::process::id()).unwrap_or_default();
    page.family(&name::CPU).value(&[], process.cpu_seconds);
    page.family(&name::MEMORY).value(&[], process.resident_bytes);
    page.family(&name::VIRTUAL).value(&[], process.virtual_bytes);
    page.family(&name::FDS).value(&[], process.open_fds);
    page.family(&name::MAX_FDS).value(&[], getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    page.family(&name::THREADS).value(&[], process.threads);
    page.family(&name::START_TIME).value(&[], process.started);
}
