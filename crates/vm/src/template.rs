//! Templates: the state of a guest that has booted, from which others begin instead of booting.
//!
//! ```text
//! DIRECTORY/KEY/memory    the memory; pages of zeros are holes
//! DIRECTORY/KEY/state     the rest, as the virtual machine monitor saved it
//! DIRECTORY/KEY.new       one that is being written
//! ```
//! A template has nothing of a pod: it is saved before the guest gets devices, a name, a time or randomness. The key has everything
//! that must be equal for a guest to continue. Only one template is kept, that of the last key.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};

const MEMORY: &str = "memory";
const STATE: &str = "state";
/// Ending of the name of one that is being written.
const NEW: &str = ".new";
/// Size of a page of the guest, in bytes.
const PAGE: usize = 4096;
/// How much is read at a time, in bytes.
const CHUNK: usize = 256 * PAGE;
/// What the kernel reports about the processors of the node, and most bytes of it that are read.
const PROCESSORS: &str = "/proc/cpuinfo";
const PROCESSORS_MAX: usize = 16 << 10;

/// Identifies guests that can begin from the same template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Returns the key of guests of a virtual machine monitor with this command line, which boot the image with this id. It depends on
    /// the program, and on the processor and the kernel of the node. Blocks.
    ///
    /// # Errors
    /// `System` if the program does not exist or the kernel cannot be queried.
    pub fn new(program: &Path, command: &[String], image: &str) -> Result<Self, Error> {
        let metadata = fs::metadata(program).map_err(system(format!("read the metadata of {}", program.display())))?;
        let identity = [metadata.dev(), metadata.ino(), metadata.size()];
        let times = [metadata.mtime(), metadata.mtime_nsec()];
        let uname = rustix::system::uname();
        let kernel = [uname.release(), uname.version()].map(|text| text.to_string_lossy().into_owned());
        let mut hasher = Sha256::new();
        let mut add = |part: &[u8]| {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        command.iter().for_each(|word| add(word.as_bytes()));
        identity.iter().for_each(|number| add(&number.to_le_bytes()));
        times.iter().for_each(|number| add(&number.to_le_bytes()));
        add(image.as_bytes());
        kernel.iter().for_each(|text| add(text.as_bytes()));
        add(processor()?.as_bytes());
        let digest = hasher.finalize();
        Ok(Self(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()))
    }
}

/// Returns what identifies the processor: its model and its features.
fn processor() -> Result<String, Error> {
    let mut buffer = vec![0; PROCESSORS_MAX];
    let file = File::open(PROCESSORS).and_then(|file| file.read_at(&mut buffer, 0));
    buffer.truncate(file.map_err(system(format!("read {PROCESSORS}")))?);
    let text = String::from_utf8_lossy(&buffer);
    // Others, such as the frequency, change.
    let keys = ["vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "CPU implementer", "Features"];
    let first = text.split("\n\n").next().unwrap_or_default();
    let is_constant = |line: &&str| keys.contains(&line.split(':').next().unwrap_or_default().trim());
    Ok(first.lines().filter(is_constant).collect::<Vec<_>>().join("\n"))
}

/// The templates of a handler.
#[derive(Clone, Debug)]
pub struct Templates {
    directory: PathBuf,
}

/// A template.
#[derive(Clone, Debug)]
pub struct Template {
    /// Its directory, with the file [`Template::MEMORY`].
    pub directory: PathBuf,
}

impl Template {
    /// Name of the file with the memory.
    pub const MEMORY: &str = MEMORY;

    /// Opens the file with the rest of the state.
    ///
    /// # Errors
    /// `System` if it is gone.
    pub fn state(&self) -> Result<OwnedFd, Error> {
        let path = self.directory.join(STATE);
        File::open(&path).map(OwnedFd::from).map_err(system(format!("open {}", path.display())))
    }
}

impl Templates {
    /// The templates in a directory, which need not exist.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the template with this key. Blocks.
    pub fn find(&self, key: &Key) -> Option<Template> {
        let directory = self.directory.join(&key.0);
        let is_complete = [MEMORY, STATE].iter().all(|name| directory.join(name).is_file());
        is_complete.then_some(Template { directory })
    }

    /// Begins to write a template. It exists when it is published. Blocks.
    ///
    /// # Errors
    /// `System` if the directory cannot be written.
    pub fn begin(&self, key: &Key) -> Result<Draft, Error> {
        let (new, target) = (self.directory.join(format!("{}{NEW}", key.0)), self.directory.join(&key.0));
        let failed = |error| system(format!("create {}", new.display()))(error);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(failed)?;
        remove(&new).map_err(failed)?;
        // Read by virtual machine monitors, each of which has a user of its own and sees only this directory.
        DirBuilder::new().create(&new).map_err(failed)?;
        fs::set_permissions(&new, Permissions::from_mode(0o755)).map_err(failed)?;
        let create = |name: &str| {
            let path = new.join(name);
            let created = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
            // Whatever the umask is.
            let created = created.and_then(|file| file.set_permissions(Permissions::from_mode(0o644)).map(|()| file));
            created.map_err(system(format!("create {}", path.display())))
        };
        let (memory, state) = (create(MEMORY)?, create(STATE)?);
        Ok(Draft { templates: self.clone(), new, target, memory, state })
    }

    /// Removes all templates. Blocks.
    ///
    /// # Errors
    /// `System` if a file cannot be removed.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.directory).map_err(system(format!("remove {}", self.directory.display())))
    }

    /// Removes all templates but one.
    fn remove_others(&self, kept: &Path) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path != kept {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// A template that is being written. It is removed when it is dropped before it is published.
#[derive(Debug)]
pub struct Draft {
    templates: Templates,
    new: PathBuf,
    target: PathBuf,
    memory: File,
    state: File,
}

impl Draft {
    /// Returns the file for the state without the memory.
    ///
    /// # Errors
    /// `System` if there are too many open files.
    pub fn state(&self) -> Result<OwnedFd, Error> {
        self.state.as_fd().try_clone_to_owned().map_err(system("open the state of a template".to_owned()))
    }

    /// Copies the memory of a paused guest. Blocks.
    ///
    /// # Errors
    /// `System` if the disk is full, or the memory cannot be read.
    pub fn copy_memory(&self, from: &File) -> Result<(), Error> {
        let copy = || {
            let size = from.metadata()?.len();
            self.memory.set_len(size)?;
            let mut buffer = vec![0; CHUNK];
            let mut position = 0;
            while let Some((begin, end)) = next_data(from, position)? {
                position = begin;
                while position < end.min(size) {
                    let n = from.read_at(&mut buffer, position)?;
                    if n == 0 {
                        return Ok(());
                    }
                    write_pages(&self.memory, &buffer[..n], position)?;
                    position += n as u64;
                }
            }
            Ok(())
        };
        copy().map_err(system::<io::Error>(format!("write {}", self.new.join(MEMORY).display())))
    }

    /// Makes it the template with its key, which is complete even after a crash of the node. Removes all others. Blocks.
    ///
    /// # Errors
    /// `System` if it cannot be written to the disk.
    pub fn publish(self) -> Result<(), Error> {
        let publish = || {
            self.memory.sync_all()?;
            self.state.sync_all()?;
            File::open(&self.new)?.sync_all()?;
            // One with this key could not be loaded, or another daemon made it.
            remove(&self.target)?;
            fs::rename(&self.new, &self.target)?;
            File::open(&self.templates.directory)?.sync_all()?;
            self.templates.remove_others(&self.target)
        };
        publish().map_err(system::<io::Error>(format!("publish {}", self.target.display())))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is gone if it was published, and the next one removes it.
        let _ = remove(&self.new);
    }
}

/// Returns the next range that is not a hole.
fn next_data(file: &File, position: u64) -> io::Result<Option<(u64, u64)>> {
    match seek(file, SeekFrom::Data(position)) {
        Err(Errno::NXIO) => Ok(None),
        begin => {
            let begin = begin?;
            Ok(Some((begin, seek(file, SeekFrom::Hole(begin))?)))
        }
    }
}

/// Writes runs of pages that are not zero.
fn write_pages(to: &File, bytes: &[u8], position: u64) -> io::Result<()> {
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let mut begin = None;
    for (index, page) in bytes.chunks(PAGE).enumerate() {
        match (is_zero(page), begin) {
            (false, None) => begin = Some(index * PAGE),
            (true, Some(first)) => {
                to.write_all_at(&bytes[first..index * PAGE], position + first as u64)?;
                begin = None;
            }
            _ => {}
        }
    }
    begin.map_or(Ok(()), |first| to.write_all_at(&bytes[first..], position + first as u64))
}

fn system<E: ToString>(operation: String) -> impl FnOnce(E) -> Error {
    move |error| Error::new(ErrorKind::System, operation, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(word: &str) -> Key {
        Key::new(Path::new("/proc/self/exe"), &[word.to_owned()], "image").expect("a key")
    }

    #[test]
    fn a_key_is_that_of_all_that_must_be_equal() {
        assert_eq!(key("a"), key("a"));
        assert_ne!(key("a"), key("b"));
        let of = |words: &[&str], image: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Key::new(Path::new("/proc/self/exe"), &words, image).expect("a key")
        };
        assert_ne!(of(&["a", "b"], ""), of(&["ab"], ""));
        assert_ne!(of(&["a"], "x"), of(&["a"], "y"));
        assert_ne!(Key::new(Path::new("/bin/sh"), &["a".to_owned()], "image").expect("a key"), key("a"));
        assert!(Key::new(Path::new("/does/not/exist"), &[], "").is_err());
    }

    #[test]
    fn a_template_exists_when_it_is_published() {
        let root = tempfile::tempdir().expect("a directory");
        let templates = Templates::new(root.path().join("vm"));
        let guest = tempfile::tempfile().expect("a file");
        guest.set_len(16 << 20).expect("a size");
        // A hole, a page, a page of zeros, two pages, and the last one.
        let pages = [(1u64, 1u8), (2, 0), (3, 3), (4, 4), (4095, 5)];
        for (page, byte) in pages {
            guest.write_all_at(&[byte; PAGE], page * PAGE as u64).expect("written");
        }
        let draft = templates.begin(&key("a")).expect("a draft");
        draft.copy_memory(&guest).expect("copied");
        assert!(templates.find(&key("a")).is_none(), "it is not complete");
        File::from(draft.state().expect("a file")).write_all_at(b"state", 0).expect("written");
        draft.publish().expect("published");
        let template = templates.find(&key("a")).expect("a template");
        let memory = File::open(template.directory.join(Template::MEMORY)).expect("a file");
        let metadata = memory.metadata().expect("metadata");
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (16 << 20, 0o644));
        assert_eq!(metadata.blocks() * 512, 4 * PAGE as u64, "holes and zeros are holes");
        for (page, byte) in pages {
            let mut content = [9; PAGE];
            memory.read_exact_at(&mut content, page * PAGE as u64).expect("read");
            assert!(content == [byte; PAGE], "page {page}");
        }
        assert_eq!(
            template
                .state()
                .and_then(|state| File::from(state).metadata().map_err(system(String::new())))
                .map(|m| m.len()),
            Ok(5)
        );

        let dropped = templates.begin(&key("b")).expect("a draft");
        drop(dropped);
        assert_eq!(fs::read_dir(root.path().join("vm")).expect("entries").count(), 1, "nothing is left of it");
        let draft = templates.begin(&key("b")).expect("a draft");
        draft.publish().expect("published");
        assert!(
            templates.find(&key("a")).is_none() && templates.find(&key("b")).is_some(),
            "only the last one is kept"
        );
        templates.remove().expect("removed");
        templates.remove().expect("nothing to remove");
        assert!(templates.find(&key("b")).is_none());
    }
}
