use std::{
    env,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::Failure;

const NAME: &str = "pinmon";

/// The monitor program: the configured one, else beside this program, in `../libexec/pinion`, or in `$PATH`.
pub(crate) fn find(configured: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = configured {
        return match is_program(path) {
            true => Ok(path.to_path_buf()),
            false => Err(Failure::daemon(format!(
                "monitor {}: not a program; correct `monitor` in the configuration",
                path.display()
            ))),
        };
    }
    let candidates = candidates();
    let found = candidates.iter().find(|path| is_program(path));
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        Failure::daemon(format!(
            "no monitor program at {}; install {NAME} or set `monitor` in the configuration",
            places.join(", ")
        ))
    })
}

fn candidates() -> Vec<PathBuf> {
    let own = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
    let beside =
        own.into_iter().flat_map(|directory| [directory.join(NAME), directory.join("../libexec/pinion").join(NAME)]);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(NAME))
        .collect();
    beside.chain(in_path).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
