use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::error::{Error, ErrorKind};

/// Directories of modules, relative to the root. `lib` is often a symbolic link to `usr/lib`, but not in an unpacked
/// package.
const MODULE_DIRECTORIES: [&str; 2] = ["usr/lib/modules", "lib/modules"];
const OPERATION: &str = "find kernel in";

/// Inputs of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The kernel: a bzImage, an uncompressed ELF file, or an `Image` of arm64.
    pub kernel: PathBuf,
    /// Directory of the kernel's modules, whose name is the kernel's release: `/lib/modules/6.1.0-56-cloud-amd64`.
    pub modules: PathBuf,
    /// The agent, a static program that becomes `/init`.
    pub agent: PathBuf,
}

impl Sources {
    /// Finds the newest kernel that has modules, or the kernel of `release`, under a root directory: `/`, or an
    /// unpacked package of a distribution.
    ///
    /// The kernel is `boot/vmlinuz-RELEASE` (Debian), or `vmlinuz` or `Image` in the directory of the modules
    /// (Fedora, SUSE). "Newest" is decided by the version in the release, not by the age of the files.
    ///
    /// # Errors
    /// `NotFound`, with the releases that were found.
    pub fn find(root: &Path, release: Option<&str>, agent: PathBuf) -> Result<Self, Error> {
        let mut found = BTreeSet::new();
        let mut candidates = Vec::new();
        for (name, modules) in module_directories(root)? {
            match kernel(root, &name, &modules) {
                Some(kernel) if release.is_none_or(|release| release == name) => {
                    candidates.push((name, kernel, modules))
                }
                Some(_) => drop(found.insert(name)),
                None => drop(found.insert(format!("{name} (without a kernel)"))),
            }
        }
        for name in boot_releases(root)? {
            if !MODULE_DIRECTORIES.iter().any(|directory| root.join(directory).join(&name).is_dir()) {
                found.insert(format!("{name} (without modules)"));
            }
        }
        let newest = candidates.into_iter().max_by(|(a, ..), (b, ..)| compare_versions(a, b));
        if let Some((_, kernel, modules)) = newest {
            return Ok(Self { kernel, modules, agent });
        }
        let releases = match found.is_empty() {
            true => "nothing".to_owned(),
            false => found.into_iter().collect::<Vec<_>>().join(", "),
        };
        let requested =
            release.map_or("kernel with modules".to_owned(), |release| format!("kernel of release {release}"));
        let cause = format!("no {requested}; found {releases}");
        Err(Error::new(ErrorKind::NotFound, OPERATION, root, cause)
            .with_remedy("install a kernel package of the distribution, or unpack one and pass its directory"))
    }
}

/// Returns release and directory of each set of modules.
fn module_directories(root: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut directories = Vec::new();
    for parent in MODULE_DIRECTORIES.map(|directory| root.join(directory)) {
        for name in names(&parent)? {
            let directory = parent.join(&name);
            if directory.is_dir() {
                directories.push((name, directory));
            }
        }
    }
    Ok(directories)
}

fn kernel(root: &Path, release: &str, modules: &Path) -> Option<PathBuf> {
    let boot = root.join("boot").join(format!("vmlinuz-{release}"));
    [boot, modules.join("vmlinuz"), modules.join("Image")].into_iter().find(|path| path.is_file())
}

fn boot_releases(root: &Path) -> Result<Vec<String>, Error> {
    let names = names(&root.join("boot"))?;
    Ok(names.iter().filter_map(|name| name.strip_prefix("vmlinuz-")).map(str::to_owned).collect())
}

/// Returns the names of a directory's entries; none if it does not exist.
fn names(directory: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("read directory", directory))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let names: io::Result<Vec<_>> = names.collect();
    Ok(names.map_err(Error::io("read directory", directory))?.into_iter().flatten().collect())
}

/// Compares releases of kernels: numbers by value, `-rc` and `~` before the end of a release, as in `sort
/// --version-sort`.
fn compare_versions(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.replace("-rc", "~rc"), b.replace("-rc", "~rc"));
    let (mut a, mut b) = (a.as_str(), b.as_str());
    loop {
        let (a_text, b_text) =
            (take_while(&mut a, |c| !c.is_ascii_digit()), take_while(&mut b, |c| !c.is_ascii_digit()));
        let (a_number, b_number) =
            (take_while(&mut a, |c| c.is_ascii_digit()), take_while(&mut b, |c| c.is_ascii_digit()));
        let (a_number, b_number) = (a_number.trim_start_matches('0'), b_number.trim_start_matches('0'));
        let numbers = a_number.len().cmp(&b_number.len()).then_with(|| a_number.cmp(b_number));
        let ordering = text_rank(a_text).cmp(text_rank(b_text)).then(numbers);
        if ordering.is_ne() || (a.is_empty() && b.is_empty()) {
            return ordering;
        }
    }
}

/// Ranks characters: `~`, the end, then the others.
fn text_rank(text: &str) -> impl Iterator<Item = u32> {
    let rank = |character| if character == '~' { 0 } else { u32::from(character) + 2 };
    text.chars().map(rank).chain([1])
}

fn take_while<'a>(text: &mut &'a str, matches: impl Fn(char) -> bool) -> &'a str {
    let end = text.find(|character| !matches(character)).unwrap_or(text.len());
    let (taken, rest) = text.split_at(end);
    *text = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    fn find(root: &Path, release: Option<&str>) -> Result<(String, String), String> {
        let sources = Sources::find(root, release, "/agent".into()).map_err(|error| error.to_string())?;
        let relative = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
        Ok((relative(&sources.kernel), relative(&sources.modules)))
    }

    #[test]
    fn the_newest_kernel_with_modules_is_found() {
        let root = root(&[
            "boot/vmlinuz-6.1.0-9-amd64",
            "boot/vmlinuz-6.1.0-10-amd64",
            "boot/vmlinuz-6.12.0-1-amd64",
            "lib/modules/6.1.0-9-amd64/modules.dep",
            "lib/modules/6.1.0-10-amd64/modules.dep",
            "usr/lib/modules/6.2.1-300.fc42.x86_64/modules.dep",
        ]);
        let debian = ("boot/vmlinuz-6.1.0-10-amd64".into(), "lib/modules/6.1.0-10-amd64".into());
        assert_eq!(find(root.path(), None), Ok(debian));
        assert_eq!(find(root.path(), Some("6.1.0-9-amd64")).unwrap().1, "lib/modules/6.1.0-9-amd64");
        fs::write(root.path().join("usr/lib/modules/6.2.1-300.fc42.x86_64/vmlinuz"), "").unwrap();
        let modules = "usr/lib/modules/6.2.1-300.fc42.x86_64".to_owned();
        assert_eq!(find(root.path(), None), Ok((format!("{modules}/vmlinuz"), modules)));
    }

    #[test]
    fn an_error_lists_the_releases() {
        let root = root(&["boot/vmlinuz-6.2", "lib/modules/6.1/modules.dep"]);
        let error = find(root.path(), None).unwrap_err();
        assert!(
            error.contains("no kernel with modules; found 6.1 (without a kernel), 6.2 (without modules); install"),
            "{error}"
        );
        fs::write(root.path().join("boot/vmlinuz-6.1"), "").unwrap();
        let error = find(root.path(), Some("6.3")).unwrap_err();
        assert!(error.contains("no kernel of release 6.3; found 6.1, 6.2 (without modules)"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        assert!(find(empty.path(), None).unwrap_err().contains("found nothing"));
    }

    #[test]
    fn versions_are_ordered() {
        let ordered = ["5.9-x", "6.1.0-rc2", "6.1.0-rc10", "6.1.0", "6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.1", "6.10"];
        for (index, smaller) in ordered.iter().enumerate() {
            assert_eq!(compare_versions(smaller, smaller), Ordering::Equal);
            for larger in &ordered[index + 1..] {
                assert_eq!(compare_versions(smaller, larger), Ordering::Less, "{smaller} {larger}");
                assert_eq!(compare_versions(larger, smaller), Ordering::Greater, "{larger} {smaller}");
            }
        }
    }
}
