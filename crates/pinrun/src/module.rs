//! Containers whose program is a WebAssembly module, as requested by crun's annotations `run.oci.handler=wasm` and
//! `module.wasm.image/variant=compat` (or `compat-smart`: if the program is a module).

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs::File,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use container::Interpreter;
use rustix::{
    fd::AsFd,
    fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
};

use crate::failure::Failure;

const HANDLER: &str = "run.oci.handler";
const VARIANT: &str = "module.wasm.image/variant";
/// Variable of the environment with the path of the program that runs modules.
const VARIABLE: &str = "PINION_WASM";
const PROGRAM: &str = "pinion-wasm";
/// Directories of the program, after that of this program.
const DIRECTORIES: [&str; 3] = ["/usr/local/libexec/pinion", "/usr/libexec/pinion", "/usr/lib/pinion"];
/// First bytes of a WebAssembly binary.
const MAGIC: [u8; 4] = *b"\0asm";

/// Whether the program of a container is a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Program,
    /// If its file is one.
    ByContent,
    Module,
}

/// Returns the program that runs the module of a container; `None` if its program is not a module.
pub(crate) fn interpreter(spec: &oci::Spec, rootfs: &Path) -> Result<Option<Interpreter>, Failure> {
    let is_module = match kind(&spec.annotations) {
        Kind::Program => false,
        Kind::ByContent => spec.process.as_ref().is_some_and(|process| is_module(process, rootfs)),
        Kind::Module => true,
    };
    if !is_module {
        return Ok(None);
    }
    let path = find()?;
    let failed = |cause| Failure::io(format!("open {} for the module", path.display()), cause);
    let program = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let program = container::self_exe::read_only(program).map_err(failed)?;
    let arguments = vec![PROGRAM.to_owned(), "run".to_owned()];
    // The module is compiled in the container.
    Ok(Some(Interpreter { program, arguments, code: None }))
}

/// Hides `/proc` and `/sys` from a module, unless its process may mount: through `/proc/self/mem` it could write the memory of
/// the process outside of its own.
pub(crate) fn hide_process_files(spec: &mut oci::Spec) {
    let capabilities = spec.process.as_ref().and_then(|process| process.capabilities.as_ref());
    let may_mount = capabilities.is_some_and(|all| all.effective.iter().any(|name| name == "CAP_SYS_ADMIN"));
    if let (false, Some(linux)) = (may_mount, &mut spec.linux) {
        linux.hide_process_files();
    }
}

fn kind(annotations: &BTreeMap<String, String>) -> Kind {
    let value = |name: &str| annotations.get(name).map(String::as_str);
    match (value(HANDLER), value(VARIANT)) {
        (Some("wasm"), _) | (_, Some("compat")) => Kind::Module,
        (_, Some("compat-smart")) => Kind::ByContent,
        _ => Kind::Program,
    }
}

/// Reports whether the program of a process is a module.
fn is_module(process: &oci::Process, rootfs: &Path) -> bool {
    let Some(name) = process.args.first() else { return false };
    let open = || -> Result<OwnedFd, Errno> {
        let root = openat2(CWD, rootfs, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())?;
        let path = Path::new(&process.cwd).join(name);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat2(root.as_fd(), &path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    };
    let mut head = [0; MAGIC.len()];
    let is_file = |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file());
    let file = open().map(File::from).ok().filter(is_file);
    file.is_some_and(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).is_ok()) && head == MAGIC
}

/// Finds the program: `PINION_WASM`, next to this program if that was executed by a path, or where packages install it.
fn find() -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let own = env::args_os().next().unwrap_or_default();
    let own = Path::new(&own).parent().filter(|directory| directory.as_os_str() != OsStr::from_bytes(b""));
    let directories = own.into_iter().chain(DIRECTORIES.map(Path::new));
    let mut paths = directories.map(|directory| directory.join(PROGRAM));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        Failure::new(format!(
            "run the WebAssembly module: no {PROGRAM} next to this program, in {}; install it, or set {VARIABLE} to \
             its path",
            DIRECTORIES.join(" or ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_decide_what_runs_a_container() {
        let kind = |name: &str, value: &str| kind(&[(name.to_owned(), value.to_owned())].into());
        assert_eq!(kind(HANDLER, "wasm"), Kind::Module);
        assert_eq!(kind(HANDLER, "krun"), Kind::Program);
        assert_eq!(kind(VARIANT, "compat"), Kind::Module);
        assert_eq!(kind(VARIANT, "compat-smart"), Kind::ByContent);
        assert_eq!(kind("other", "wasm"), Kind::Program);
    }
}
