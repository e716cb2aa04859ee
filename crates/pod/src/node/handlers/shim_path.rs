//! Where the program of a shim is.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::ShimHandler;

/// Where programs of handlers are looked up, and find those that they execute.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the path of a handler's shim.
///
/// # Errors
/// Why it cannot be executed, with the remedy.
pub(crate) fn find_shim(handler: &ShimHandler) -> Result<PathBuf, String> {
    let is_executable = |path: &PathBuf| {
        let metadata = offload::in_place(|| std::fs::metadata(path));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let missing =
        |what: String| Err(format!("{what}; install the shim, or correct handlers.{name}.binary", name = handler.name));
    if handler.binary.is_absolute() {
        return match is_executable(&handler.binary) {
            true => Ok(handler.binary.clone()),
            false => missing(format!("{} is not an executable file", handler.binary.display())),
        };
    }
    let name = handler.binary.to_string_lossy();
    let program = program_name(&name);
    let found = PATH.split(':').map(|directory| Path::new(directory).join(&program)).find(is_executable);
    match found {
        Some(path) => Ok(path),
        None => missing(format!("{program} is not in {PATH}")),
    }
}

/// Returns the name of a shim's program: `io.containerd.runc.v2` is `containerd-shim-runc-v2`.
fn program_name(name: &str) -> String {
    match name.rsplitn(3, '.').collect::<Vec<_>>()[..] {
        [version, runtime, _] => format!("containerd-shim-{runtime}-{version}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shims_have_the_names_of_containerd() {
        assert_eq!(program_name("io.containerd.runc.v2"), "containerd-shim-runc-v2");
        assert_eq!(program_name("io.containerd.runsc.v1"), "containerd-shim-runsc-v1");
        assert_eq!(program_name("containerd-shim-kata-v2"), "containerd-shim-kata-v2");
    }

    #[test]
    fn a_missing_shim_is_refused() {
        let handler = |binary: &str| ShimHandler { name: "x".into(), binary: binary.into(), ..ShimHandler::default() };
        assert!(find_shim(&handler("/bin/sh")).is_ok());
        let file = tempfile::NamedTempFile::new().expect("a file that is not executable");
        let file = file.path().to_str().expect("UTF-8");
        for missing in ["/no/such/shim", "/etc", file, "io.example.missing.v9"] {
            let error = find_shim(&handler(missing)).expect_err("refused");
            assert!(error.contains("correct handlers.x.binary"), "{error}");
        }
    }
}
