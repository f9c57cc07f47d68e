//! The records of ended pods: a file for each pod, in a directory for each of Kubernetes' namespaces.
//!
//! Owns the files: where they are, who may read them (root), what may never be in them (commands, environment), and when they
//! are removed. Each namespace has its share, so that one tenant's pods do not push out another's.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use control_api::Past;
use control_api::event::Kind;
use control_api::text::{of_events, of_inspection};
use nix::fcntl::{Flock, FlockArg};
use protobuf::Message;

/// The directory of the node's records. It outlives a reboot.
pub const HISTORY_ROOT: &str = "/var/lib/podshim/history";
/// The largest file that is read: a pod's 256 events take 20 kB as a rule.
const LARGEST: u64 = 1 << 20;
/// How often old files are removed at most.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// The file that is locked while old files are removed. Its modification time is when that was done last.
const LOCK: &str = ".lock";
const EXTENSION: &str = "past";
const UNFINISHED: &str = "new";
/// The longest part of a file's name that comes from an annotation.
const LONGEST_NAME: usize = 100;

/// How many records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all files.
    pub size: u64,
    /// Bytes of the files of one namespace.
    pub namespace_size: u64,
    /// Older files are removed.
    pub age: Duration,
}

/// Removes what may be a command or a secret: the programs of gates, and the output of the OCI runtime, probes and hooks.
/// Of such an output the end stays if it is an error of the system or an exit code.
pub fn forget_commands(past: &mut Past) {
    for container in &mut past.pod.mut_or_insert_default().containers {
        container.gate = container.gate.split(':').next().unwrap_or_default().to_owned();
        container.held_for = first_words(&container.held_for);
    }
    for event in &mut past.events.mut_or_insert_default().events {
        event.text = match event.kind.enum_value_or_default() {
            Kind::HELD => first_words(&event.text),
            // The text is the hook's name.
            Kind::HOOK_STARTED | Kind::HOOK_ENDED => std::mem::take(&mut event.text),
            _ => last_words(&event.text),
        };
        if !event.failure.is_empty() {
            // An event without a failure would look like a success.
            let words = last_words(&event.failure);
            event.failure = if words.is_empty() { "failed".to_owned() } else { words };
        }
    }
}

/// A record's file, below the root: `NAMESPACE/TIME-POD-ID.past`.
#[must_use]
pub fn file_of(past: &Past) -> PathBuf {
    let pod = past.pod.get_or_default();
    let name = match pod.pod_name.as_str() {
        "" => file_name(&pod.id),
        name => file_name(name),
    };
    let file = format!("{:013}-{name}-{}.{EXTENSION}", past.ended_at_ms, short_id(&pod.id));
    Path::new(&directory_of(past)).join(file)
}

/// The directory of a record's Kubernetes namespace; without Kubernetes, of containerd's.
fn directory_of(past: &Past) -> String {
    let pod = past.pod.get_or_default();
    match pod.pod_namespace.as_str() {
        "" => format!("containerd.{}", file_name(&pod.namespace)),
        namespace => file_name(namespace),
    }
}

/// Writes a record, whole or not at all, and removes older ones beyond the bounds. `file` is [`file_of`].
///
/// # Errors
/// The system's answer; no part of the record is left then.
pub fn keep(root: &Path, file: &Path, bytes: &[u8], bounds: &Bounds) -> io::Result<()> {
    if bounds.size == 0 || bounds.namespace_size == 0 {
        return Ok(());
    }
    let path = root.join(file);
    match write(root, &path, bytes) {
        // Another process has just removed the directory, which was empty.
        Err(error) if error.kind() == io::ErrorKind::NotFound => write(root, &path, bytes)?,
        result => result?,
    }
    prune_now_and_then(root, bounds)
}

fn write(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(root))?;
    let temporary = path.with_extension(UNFINISHED);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// All records, oldest first, and the files that could not be read.
///
/// # Errors
/// The directory is there and cannot be read.
pub fn list(root: &Path) -> io::Result<(Vec<Past>, Vec<PathBuf>)> {
    let mut unreadable = Vec::new();
    let mut all = Vec::new();
    for kept in files(root)? {
        match read(&kept.path) {
            Ok(past) => all.push(past),
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => unreadable.push(kept.path),
        }
    }
    all.sort_by_key(|past| past.ended_at_ms);
    Ok((all, unreadable))
}

/// The records that can be read, newest first. Each is read when it is asked for.
///
/// # Errors
/// The directory is there and cannot be read.
pub fn newest(root: &Path) -> io::Result<impl Iterator<Item = Past>> {
    Ok(files(root)?.into_iter().rev().filter_map(|kept| read(&kept.path).ok()))
}

/// The records of pods with that id, newest first, as [`newest`]. Reads those only whose ids begin as it does.
///
/// # Errors
/// The directory is there and cannot be read.
pub fn of_id(root: &Path, id: &str) -> io::Result<impl Iterator<Item = Past>> {
    let (end, id) = (end_of(id), id.to_owned());
    let files = files(root)?.into_iter().rev().filter(move |kept| kept.ends_with(&end));
    Ok(files.filter_map(|kept| read(&kept.path).ok()).filter(move |past| past.pod.id == id))
}

/// Whether there is a record of the pod with that id. Reads no record.
///
/// # Errors
/// The directory is there and cannot be read.
pub fn has(root: &Path, id: &str) -> io::Result<bool> {
    let end = end_of(id);
    Ok(files(root)?.iter().any(|kept| kept.ends_with(&end)))
}

/// How the names of the records of such an id end.
fn end_of(id: &str) -> String {
    format!("-{}.{EXTENSION}", short_id(id))
}

/// As much of an id as a file's name has.
fn short_id(id: &str) -> String {
    file_name(&id.chars().take(13).collect::<String>())
}

fn read(path: &Path) -> io::Result<Past> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut past = Past::parse_from_reader(&mut file).map_err(io::Error::other)?;
    // A power cut can leave an empty file.
    if past.version == 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    of_inspection(past.pod.mut_or_insert_default());
    of_events(past.events.mut_or_insert_default());
    Ok(past)
}

/// The file of a record.
#[derive(Clone, Debug)]
struct Kept {
    namespace: PathBuf,
    path: PathBuf,
    size: u64,
    at: SystemTime,
}

impl Kept {
    fn ends_with(&self, end: &str) -> bool {
        self.path.to_str().is_some_and(|path| path.ends_with(end))
    }
}

/// The files of all records, by name: the oldest first, as names begin with the time.
fn files(root: &Path) -> io::Result<Vec<Kept>> {
    let namespaces = match fs::read_dir(root) {
        Ok(namespaces) => namespaces,
        // No pod has ended on this node yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for namespace in namespaces.flatten().map(|entry| entry.path()) {
        for file in fs::read_dir(&namespace).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION)
                && let Ok(metadata) = file.metadata()
                && let Ok(at) = metadata.modified()
            {
                files.push(Kept { namespace: namespace.clone(), path, size: metadata.len(), at });
            }
        }
    }
    files.sort_by(|a, b| a.path.file_name().cmp(&b.path.file_name()));
    Ok(files)
}

/// Removes old files at most once a minute. If another process is at it, this one does not wait.
fn prune_now_and_then(root: &Path, bounds: &Bounds) -> io::Result<()> {
    let lock = root.join(LOCK);
    let is_new = !lock.exists();
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock)?;
    let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    let last = lock.metadata()?.modified()?;
    if !is_new && now().duration_since(last).is_ok_and(|since| since < PRUNE_EVERY) {
        return Ok(());
    }
    lock.set_modified(now())?;
    prune(root, bounds, now())
}

/// Removes files that are too old, then the oldest of each namespace beyond its share, then the oldest of the largest
/// namespace until all are within the bound.
fn prune(root: &Path, bounds: &Bounds, now: SystemTime) -> io::Result<()> {
    let mut files = files(root)?;
    files.retain(|file| {
        let too_old = now.duration_since(file.at).is_ok_and(|age| age > bounds.age);
        !(too_old && fs::remove_file(&file.path).is_ok())
    });
    let mut namespaces: Vec<PathBuf> = files.iter().map(|file| file.namespace.clone()).collect();
    namespaces.sort();
    namespaces.dedup();
    let mut sizes: Vec<(PathBuf, u64)> = namespaces
        .into_iter()
        .map(|namespace| {
            let size = files.iter().filter(|file| file.namespace == namespace).map(|file| file.size).sum();
            (namespace, size)
        })
        .collect();
    let mut remove_oldest_of = |namespace: &Path| {
        let oldest = files.iter().position(|file| file.namespace == namespace)?;
        let file = files.remove(oldest);
        let _ = fs::remove_file(&file.path);
        Some(file.size)
    };
    for (namespace, size) in &mut sizes {
        while *size > bounds.namespace_size {
            let Some(freed) = remove_oldest_of(namespace) else { break };
            *size -= freed;
        }
    }
    while sizes.iter().map(|(_, size)| size).sum::<u64>() > bounds.size {
        let Some((namespace, size)) = sizes.iter_mut().max_by_key(|(_, size)| *size) else { break };
        let Some(freed) = remove_oldest_of(namespace) else { break };
        *size -= freed;
    }
    for directory in fs::read_dir(root)?.flatten().map(|entry| entry.path()) {
        for file in fs::read_dir(&directory).into_iter().flatten().flatten() {
            // Its writer was killed.
            let unfinished = file.path().extension().is_some_and(|extension| extension == UNFINISHED);
            let at = file.metadata().and_then(|metadata| metadata.modified());
            let is_old = |at| now.duration_since(at).is_ok_and(|age| age > PRUNE_EVERY);
            if unfinished && at.is_ok_and(is_old) {
                let _ = fs::remove_file(file.path());
            }
        }
        // Only an empty directory is removed.
        let _ = fs::remove_dir(directory);
    }
    Ok(())
}

/// The name as part of a file name, never a path: names come from annotations.
fn file_name(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let of_byte = |(index, byte): (usize, u8)| match byte {
        byte if plain(byte) || (byte == b'.' && index > 0) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    let name: String = name.bytes().enumerate().map(of_byte).collect();
    name.chars().take(LONGEST_NAME).collect()
}

/// What a container is held for, without the output of its probe, which follows a colon.
fn first_words(text: &str) -> String {
    text.split(": ").next().unwrap_or_default().to_owned()
}

/// Errors of the system, which are never part of a command.
const ERRORS: [&str; 7] = [
    "no such file or directory",
    "permission denied",
    "executable file not found in $PATH",
    "exec format error",
    "not a directory",
    "is a directory",
    "timed out",
];

/// The end of a message, if it is an error of the system or an exit code.
fn last_words(text: &str) -> String {
    let words = text.rsplit(": ").next().unwrap_or_default();
    let (before, number) = words.rsplit_once(' ').unwrap_or_default();
    let is_code = matches!(before, "exit status" | "exit code" | "exited with" | "killed by signal")
        && number.parse::<u32>().is_ok();
    if is_code || ERRORS.contains(&words) { words.to_owned() } else { String::new() }
}

#[expect(clippy::disallowed_methods, reason = "files are as old as the wall clock says")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use control_api::{Container, Event, EventsResponse, InspectResponse};

    const AMPLE: Bounds = Bounds { size: 1 << 30, namespace_size: 1 << 30, age: Duration::from_secs(3600) };

    fn past(namespace: &str, name: &str, ended_at_ms: i64) -> Past {
        let pod = InspectResponse {
            id: format!("{name}-0123456789abcdef"),
            pod_name: name.to_owned(),
            pod_namespace: namespace.to_owned(),
            ..Default::default()
        };
        Past { version: control_api::VERSION, pod: Some(pod).into(), ended_at_ms, ..Default::default() }
    }

    fn keep(root: &Path, past: &Past, bounds: &Bounds) {
        super::keep(root, &file_of(past), &past.write_to_bytes().unwrap(), bounds).unwrap();
    }

    fn names(root: &Path) -> Vec<String> {
        list(root).unwrap().0.into_iter().map(|past| past.pod.pod_name.clone()).collect()
    }

    #[test]
    fn what_is_kept_is_listed_and_for_root_alone() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("history");
        assert!(names(&root).is_empty());
        keep(&root, &past("shop", "cart", 2000), &AMPLE);
        keep(&root, &past("../..", "../etc\n", 1000), &AMPLE);
        assert_eq!(names(&root), ["../etc\\n", "cart"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for file in files(&root).unwrap() {
            assert_eq!((mode(&file.path), mode(&file.namespace), mode(&root)), (0o600, 0o700, 0o700));
            assert_eq!(file.namespace.parent(), Some(root.as_path()), "{}", file.path.display());
        }
        fs::write(root.join("shop/damaged.past"), [0xff; 100]).unwrap();
        fs::write(root.join("shop/empty.past"), []).unwrap();
        assert_eq!(list(&root).unwrap().1.len(), 2);
        let times = |pasts: Vec<Past>| pasts.iter().map(|past| past.ended_at_ms).collect::<Vec<_>>();
        assert_eq!(times(newest(&root).unwrap().collect()), [2000, 1000]);
        // One of the same id, and one whose file has the same end.
        keep(&root, &past("shop", "cart", 3000), &AMPLE);
        let mut other = past("shop", "cart", 4000);
        other.pod.mut_or_insert_default().id += "0";
        keep(&root, &other, &AMPLE);
        assert_eq!(times(of_id(&root, "cart-0123456789abcdef").unwrap().collect()), [3000, 2000]);
    }

    /// Issue 19: one tenant does not push out another's.
    #[test]
    fn a_namespace_has_its_share() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..50 {
            keep(root.path(), &past("noisy", &format!("n{number}"), 1000 + number), &AMPLE);
        }
        keep(root.path(), &past("quiet", "q", 1), &AMPLE);
        let one = files(root.path()).unwrap()[0].size;
        let bounds = Bounds { size: 20 * one, namespace_size: 30 * one, ..AMPLE };
        prune(root.path(), &bounds, now()).unwrap();
        let kept = names(root.path());
        assert!(kept.contains(&"q".to_owned()) && kept.contains(&"n49".to_owned()), "{kept:?}");
        assert!((15..=20).contains(&kept.len()), "{kept:?}");
        let bounds = Bounds { namespace_size: 5 * one, ..AMPLE };
        prune(root.path(), &bounds, now()).unwrap();
        assert!((4..=7).contains(&names(root.path()).len()), "{:?}", names(root.path()));
        prune(root.path(), &AMPLE, now() + 2 * AMPLE.age).unwrap();
        assert!(names(root.path()).is_empty());
        assert!(!root.path().join("noisy").exists());
    }

    /// Another process that holds the lock is not waited for.
    #[test]
    fn a_held_lock_delays_no_process() {
        let root = tempfile::tempdir().unwrap();
        let file = File::create(root.path().join(LOCK)).unwrap();
        let _held = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        keep(root.path(), &past("shop", "cart", 1), &Bounds { size: 1, ..AMPLE });
        assert_eq!(names(root.path()), ["cart"]);
        let nothing = Bounds { size: 0, ..AMPLE };
        keep(root.path(), &past("shop", "till", 2), &nothing);
        assert_eq!(names(root.path()), ["cart"], "a size of nothing keeps nothing");
    }

    /// A file in a directory's place, and a full disk.
    #[test]
    fn what_cannot_be_written_is_an_error_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("history");
        let cart = past("shop", "cart", 1);
        let keep = || super::keep(&root, &file_of(&cart), &cart.write_to_bytes().unwrap(), &AMPLE);
        fs::write(&root, "mine").unwrap();
        keep().unwrap_err();
        assert_eq!(fs::read_to_string(&root).unwrap(), "mine");
        fs::remove_file(&root).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("shop"), "mine").unwrap();
        keep().unwrap_err();
        assert_eq!(fs::read_to_string(root.join("shop")).unwrap(), "mine");
        fs::remove_file(root.join("shop")).unwrap();

        fs::create_dir(root.join("shop")).unwrap();
        let unfinished = root.join(file_of(&cart)).with_extension(UNFINISHED);
        std::os::unix::fs::symlink("/dev/full", unfinished).unwrap();
        assert_eq!(keep().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(root.join("shop")).unwrap().count(), 0);
        keep().unwrap();
        assert_eq!(names(&root), ["cart"]);
    }

    /// A record that is written stays, even if the clean-up fails; the clean-up ends, even if a file stays.
    #[test]
    fn what_cannot_be_cleaned_up_loses_no_record() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(LOCK)).unwrap();
        let cart = past("shop", "cart", 1);
        super::keep(root.path(), &file_of(&cart), &cart.write_to_bytes().unwrap(), &AMPLE).unwrap_err();
        assert_eq!(names(root.path()), ["cart"]);

        fs::create_dir(root.path().join(LOCK).join("directory.past")).unwrap();
        fs::create_dir(root.path().join("shop/0-directory.past")).unwrap();
        let nothing_fits = Bounds { size: 1, namespace_size: 1, ..AMPLE };
        prune(root.path(), &nothing_fits, now()).unwrap();
        assert!(names(root.path()).is_empty());
        assert!(root.path().join("shop/0-directory.past").exists());
    }

    /// Issue 19: no commands and no environment.
    #[test]
    fn commands_are_forgotten() {
        let mut past = past("shop", "cart", 1);
        let pod = past.pod.mut_or_insert_default();
        pod.containers.push(Container {
            gate: "exec:/bin/check --password secret".to_owned(),
            held_for: "sidecar \"db\" to be ready: exec:/bin/check secret: exit code 1".to_owned(),
            ..Default::default()
        });
        let event = |kind: Kind, text: &str, failure: &str| Event {
            kind: kind.into(),
            text: text.to_owned(),
            failure: failure.to_owned(),
            ..Default::default()
        };
        past.events = Some(EventsResponse {
            events: vec![
                event(Kind::HELD, "sidecar \"db\" to be ready: exec:/bin/check secret: x", ""),
                event(Kind::START_FAILED, "exec: \"/bin/secret\": no such file or directory", ""),
                event(Kind::GATE_FAILED, "exec:/bin/check secret", ""),
                // Cut to the history's bound.
                event(Kind::START_FAILED, "exec: \"curl -H 'Authorization: Bearer secret", ""),
                event(Kind::HOOK_ENDED, "pre-stop", "exec /bin/secret: exit code 3"),
            ],
            ..Default::default()
        })
        .into();
        forget_commands(&mut past);
        let bytes = past.write_to_bytes().unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
        let texts: Vec<_> = past.events.events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["sidecar \"db\" to be ready", "no such file or directory", "", "", "pre-stop"]);
        assert_eq!(past.events.events[4].failure, "exit code 3");
        assert_eq!(past.pod.containers[0].gate, "exec");
    }
}
