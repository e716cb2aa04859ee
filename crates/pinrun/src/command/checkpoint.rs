//! `checkpoint ID`: writes the state of a container to image files with CRIU.

use std::{
    ffi::OsString,
    fs::File,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::{
    arguments::Global,
    bundle,
    command::{delete, state::status_name},
    criu::{
        DESCRIPTORS, external,
        options::{Directories, FLAGS, common_options},
        request::{Kind, Options},
        service::{Preparation, Service},
        with_log_errors,
    },
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flag, Flags, Order, switch, value},
    log::warn,
    state::{Directory, Record},
};

const LOG: &str = "dump.log";

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let more: [Flag; 7] = [
        value(&["parent-path"]),
        value(&["page-server"]),
        value(&["status-fd"]),
        switch(&["leave-running"]),
        switch(&["pre-dump"]),
        switch(&["tcp-skip-in-flight"]),
        switch(&["link-remap"]),
    ];
    let known: Vec<Flag> = FLAGS.into_iter().chain(more).collect();
    let flags = Flags::parse(arguments, &known, Order::Mixed)?;
    let id = flags.id()?;
    let directory = Directory::open(&global.root, id)?;
    let record = directory.load()?;
    let freezer = external::freezer(&record.cgroup);
    match record.status(&directory)? {
        oci::Status::Running => {}
        oci::Status::Paused if freezer.as_ref().is_some_and(|freezer| freezer.join("cgroup.freeze").exists()) => {}
        oci::Status::Paused => {
            let reason = "criu cannot seize processes frozen by cgroup v1; resume the container first";
            return Err(Failure::new(format!("checkpoint paused container {id}: {reason}")));
        }
        status => {
            let status = status_name(status);
            return Err(Failure::new(format!("container {id} cannot be checkpointed in {status} state")));
        }
    }
    let kind = if flags.is_on("pre-dump")? { Kind::PreDump } else { Kind::Dump };
    let directories = Directories::open(&flags, true)?;
    let dumped = dump(&flags, &record, &directories, kind, freezer);
    dumped.map_err(|failure| {
        with_log_errors(failure, &directories.log(LOG)).within(format!("checkpoint container {id}"))
    })?;
    if kind == Kind::Dump && !flags.is_on("leave-running")? {
        let group = record.group().ok();
        if let Err(failure) = delete::clean(global, directory, record, group) {
            // The checkpoint itself succeeded.
            warn(global, &failure.message);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn dump(
    flags: &Flags,
    record: &Record,
    directories: &Directories,
    kind: Kind,
    freezer: Option<PathBuf>,
) -> Result<(), Failure> {
    let mut options = common_options(flags, directories, LOG, &record.annotations)?;
    options
        .pid(record.pid)
        .root(&record.rootfs)
        .leave_running(flags.is_on("leave-running")?)
        .skip_in_flight(flags.is_on("tcp-skip-in-flight")?)
        .link_remap(flags.is_on("link-remap")?);
    if let Some(freezer) = freezer {
        options.freezer(&freezer.to_string_lossy());
    }
    add_migration_options(&mut options, flags, directories)?;
    let trees = cgroup::Hierarchies::open()?;
    let config = Path::new(&record.bundle).join("config.json");
    let spec: oci::Spec = bundle::read_json(&config, &format!("{config:?} of the container"))?;
    if kind == Kind::Dump {
        external::declare(&mut options, &spec, record.pid, trees.layout() == cgroup::Layout::V2)?;
        write_descriptors(&directories.images, record.pid)?;
    }
    let status = StatusFile::parse(flags)?;
    let preparation = Preparation { cgroup: None, waits: false, inherited: &[], work: &|| Ok(()) };
    let service = Service::start(&preparation)?;
    service.wait_until_ready()?;
    service.request(kind, &options.request(kind), |notification, _| {
        if notification.script == "status-ready"
            && let Some(status) = &status
        {
            status.notify()?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Adds the options of iterative migration: a parent image and a page server.
fn add_migration_options(options: &mut Options, flags: &Flags, directories: &Directories) -> Result<(), Failure> {
    if let Some(parent) = flags.text("parent-path")?.filter(|parent| !parent.is_empty()) {
        if Path::new(parent).is_absolute() {
            return Err(Failure::usage(format!("--parent-path {parent:?}: must be relative to the image path")));
        }
        let directory = directories.images.join(parent);
        if !directory.is_dir() {
            return Err(Failure::usage(format!("--parent-path {parent:?}: {directory:?} is not a directory")));
        }
        options.parent_images(parent).track_memory(true);
    }
    if let Some(server) = flags.text("page-server")? {
        let wrong = || Failure::usage(format!("--page-server {server:?}: must be ADDRESS:PORT"));
        let (address, port) = server.rsplit_once(':').ok_or_else(wrong)?;
        options.page_server(address, port.parse().map_err(|_| wrong())?);
    }
    Ok(())
}

fn write_descriptors(images: &Path, pid: i32) -> Result<(), Failure> {
    let path = images.join(DESCRIPTORS);
    let text = serde_json::to_vec(&external::descriptors(pid)).map_err(|error| Failure::new(error.to_string()))?;
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(&text));
    written.map_err(|error| Failure::io(format!("write {path:?}"), error))
}

/// `--status-fd`: a descriptor that gets one byte when the lazy-pages server is ready.
struct StatusFile(File);

impl StatusFile {
    fn parse(flags: &Flags) -> Result<Option<Self>, Failure> {
        let Some(number) = flags.parsed::<i32>("status-fd")?.filter(|number| *number >= 0) else { return Ok(None) };
        let opened = File::options().write(true).open(format!("/proc/self/fd/{number}"));
        let opened = opened.map_err(|error| Failure::io(format!("--status-fd {number}: open for writing"), error))?;
        Ok(Some(Self(opened)))
    }

    fn notify(&self) -> Result<(), Failure> {
        (&self.0).write_all(&[0]).map_err(|error| Failure::io("write to the descriptor of --status-fd", error))
    }
}
