//! The shims of this node: found through their directory and asked in parallel, each with its own time limit.
//!
//! Owns these requests. A shim that is dead or does not answer is listed as such, and delays no other.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use control_api::InspectResponse;
use control_api::client::{Client, ClientError};
use node_setup::install::root::{Reached, Root};
use node_state::entry::{Entry, FILE};
use node_state::paths::STATE_ROOT;

/// How long a shim may take to answer: it answers from its tables, whatever its pod does.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How many shims are asked at the same time.
const AT_ONCE: usize = 32;
/// A path at which nothing is, for a socket that is gone.
const NOWHERE: &str = "/proc/self/fd/none";

/// A pod of the node, with its shim's answer or the reason why there is none.
#[derive(Debug)]
pub struct Shim {
    /// The entry under which the shim was found.
    pub entry: Entry,
    /// What the shim answered.
    pub answer: Result<InspectResponse, ClientError>,
}

impl Shim {
    /// Asks the shim of an entry.
    pub(crate) fn asked(entry: Entry) -> Self {
        let answer = ask(&entry.socket);
        Self { entry, answer }
    }
}

/// Why no single pod was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The directory exists but cannot be read.
    #[error("cannot read {}: {source}", root.display())]
    List {
        /// The directory.
        root: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No pod has that name.
    #[error("no pod {pod:?}: `podshim ps` lists them, `podshim history` those that have ended")]
    Unknown {
        /// What was asked for.
        pod: String,
    },
    /// No pod has that name, but it is the beginning of others, which the command must not take for it.
    #[error("no pod {pod:?}: what ends or changes a pod takes its whole name or id (did you mean {}?)", candidates.join(", or "))]
    OnlyBeginning {
        /// What was asked for.
        pod: String,
        /// The whole names of those that begin so.
        candidates: Vec<String>,
    },
    /// More than one pod matches.
    #[error("{pod:?} can be any of: {}", candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        pod: String,
        /// An unambiguous name for each of them.
        candidates: Vec<String>,
    },
}

/// All pods under a directory, with their shims' answers.
///
/// # Errors
/// [`FindError::List`].
pub fn all(root: &Path) -> Result<Vec<Shim>, FindError> {
    let entries = list(root)?;
    Ok(asked(entries.into_iter().map(|entry| (entry.socket.clone(), entry)).collect()))
}

/// All pods of the node with this root, with their shims' answers. Each directory and each entry that is there must be read:
/// a pod that is passed over would lose its shim's program.
///
/// # Errors
/// [`FindError::List`].
pub fn all_below(root: &Root) -> Result<Vec<Shim>, FindError> {
    let failed = |path: &Path, source| FindError::List { root: root.shown(path), source };
    let state = Path::new(STATE_ROOT);
    let namespaces = match root.list(state) {
        Ok(names) => names,
        // No pod has run since the node was booted.
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed(state, error)),
    };
    // A pod ends meanwhile, or the name is that of a file beside the directories.
    let is_no_pod =
        |error: &io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    let mut entries = Vec::new();
    for directory in namespaces.iter().map(|name| state.join(name)) {
        let pods = match root.list(&directory) {
            Err(error) if is_no_pod(&error) => continue,
            listed => listed.map_err(|error| failed(&directory, error))?,
        };
        for file in pods.iter().map(|name| directory.join(name).join(FILE)) {
            let content = match root.read(&file) {
                Err(error) if is_no_pod(&error) => continue,
                read => read.map_err(|error| failed(&file, error))?,
            };
            let broken = || failed(&file, io::Error::other("not an entry of a pod"));
            entries.push(Entry::parse(&content).ok_or_else(broken)?);
        }
    }
    // Open until all have answered.
    let sockets: Vec<_> = entries.iter().map(|entry| root.reach(&entry.socket).ok()).collect();
    let paths = sockets.iter().map(|socket| socket.as_ref().map_or_else(|| NOWHERE.into(), Reached::path));
    Ok(asked(paths.zip(entries).collect()))
}

/// Asks the shims that listen at these sockets.
fn asked(entries: Vec<(PathBuf, Entry)>) -> Vec<Shim> {
    let next = AtomicUsize::new(0);
    let (sender, answers) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(entries.len()) {
            let (sender, entries, next) = (sender.clone(), &entries, &next);
            scope.spawn(move || {
                while let Some((socket, entry)) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = sender.send(Shim { entry: entry.clone(), answer: ask(socket) });
                }
            });
        }
    });
    drop(sender);
    let mut shims: Vec<_> = answers.into_iter().collect();
    shims.sort_by(|a, b| key(&a.entry).cmp(&key(&b.entry)));
    shims
}

fn key(entry: &Entry) -> (&str, &str, &str, &str) {
    (&entry.pod_namespace, &entry.pod_name, &entry.namespace, &entry.id)
}

fn ask(socket: &Path) -> Result<InspectResponse, ClientError> {
    Client::connect(socket, ANSWER_LIMIT)?.inspect()
}

/// What a pod is called in an argument.
type Name = fn(&Entry, &str) -> bool;

/// The names that no other pod can have by accident, the best first: its id, its name, `namespace/name`, and the short id that
/// `podshim ps` and crictl show. ctr's users choose their ids: the beginning of one may be another pod's whole one.
const WHOLE_NAMES: [Name; 4] = [
    |entry, pod| entry.id == pod,
    |entry, pod| entry.pod_name == pod && !pod.is_empty(),
    |entry, pod| !entry.pod_name.is_empty() && format!("{}/{}", entry.pod_namespace, entry.pod_name) == pod,
    |entry, pod| is_random(&entry.id) && pod.len() >= SHORT_ID && entry.id.starts_with(pod),
];
/// For a command that only looks: a mistake costs nothing.
const OTHER_NAMES: [Name; 2] = [
    |entry, pod| !entry.pod_name.is_empty() && format!("{}/{}", entry.pod_name, entry.pod_namespace) == pod,
    |entry, pod| !pod.is_empty() && (entry.id.starts_with(pod) || entry.pod_name.starts_with(pod)),
];

/// Finds the one pod that `pod` means, for a command that looks at it: its id, name, `namespace/name`, `name/namespace`, or a
/// unique prefix of an id or a name. A whole name goes before a prefix.
///
/// # Errors
/// No pod matches, several do, or the directory cannot be read.
pub fn find(root: &Path, pod: &str, namespace: Option<&str>) -> Result<Entry, FindError> {
    let entries = list_of(root, namespace)?;
    let names = WHOLE_NAMES.iter().chain(&OTHER_NAMES);
    chosen(&entries, pod, names)?.ok_or_else(|| FindError::Unknown { pod: pod.to_owned() })
}

/// Finds the pod with that whole name, for a command that ends or changes it: while `web-1` is gone, `web-1` may not be `web-10`.
///
/// # Errors
/// As [`find`], and [`FindError::OnlyBeginning`].
pub fn find_exactly(root: &Path, pod: &str, namespace: Option<&str>) -> Result<Entry, FindError> {
    let entries = list_of(root, namespace)?;
    if let Some(entry) = chosen(&entries, pod, WHOLE_NAMES.iter())? {
        return Ok(entry);
    }
    let begins = entries.iter().filter(|entry| OTHER_NAMES.iter().any(|is_meant| is_meant(entry, pod)));
    let candidates: BTreeSet<_> = begins.map(title).collect();
    let (pod, candidates) = (pod.to_owned(), candidates.into_iter().collect::<Vec<_>>());
    Err(if candidates.is_empty() {
        FindError::Unknown { pod }
    } else {
        FindError::OnlyBeginning { pod, candidates }
    })
}

/// The one entry with the best of these names; `None` if none has one.
fn chosen<'a>(
    entries: &[Entry],
    pod: &str,
    names: impl Iterator<Item = &'a Name>,
) -> Result<Option<Entry>, FindError> {
    for is_meant in names {
        let meant: Vec<_> = entries.iter().filter(|entry| is_meant(entry, pod)).collect();
        match meant.as_slice() {
            [] => {}
            [entry] => return Ok(Some((*entry).clone())),
            several => {
                let candidates = several.iter().map(|entry| name_for_sure(entry)).collect();
                return Err(FindError::Ambiguous { pod: pod.to_owned(), candidates });
            }
        }
    }
    Ok(None)
}

/// The whole name of a pod as people write it: `namespace/name`, or its id.
pub fn title(entry: &Entry) -> String {
    match entry.pod_name.as_str() {
        "" => entry.id.clone(),
        name => format!("{}/{name}", entry.pod_namespace),
    }
}

/// So many characters of an id are shown: crictl shows as many, and they distinguish pods.
pub const SHORT_ID: usize = 13;

fn is_random(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether one of these words means a pod, in a command that looks.
pub fn is_one_of(entry: &Entry, words: &[String]) -> bool {
    let names = || WHOLE_NAMES.iter().chain(&OTHER_NAMES);
    words.iter().any(|word| names().any(|is_meant| is_meant(entry, word)))
}

/// The pods of a namespace of Kubernetes; without one all.
fn list_of(root: &Path, namespace: Option<&str>) -> Result<Vec<Entry>, FindError> {
    let mut entries = list(root)?;
    entries.retain(|entry| namespace.is_none_or(|namespace| entry.pod_namespace == namespace));
    Ok(entries)
}

fn list(root: &Path) -> Result<Vec<Entry>, FindError> {
    Entry::list(root).map_err(|source| FindError::List { root: root.to_owned(), source })
}

/// A name that no other pod can have: it contains the id.
fn name_for_sure(entry: &Entry) -> String {
    match entry.pod_name.as_str() {
        "" => entry.id.clone(),
        name => format!("{} ({}/{name})", entry.id, entry.pod_namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(pods: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (id, name, namespace) in pods {
            let directory = root.path().join("k8s.io").join(id);
            std::fs::create_dir_all(&directory).unwrap();
            let entry = Entry {
                id: (*id).to_owned(),
                pod_name: (*name).to_owned(),
                pod_namespace: (*namespace).to_owned(),
                ..Entry::default()
            };
            entry.write_to(&directory).unwrap();
        }
        root
    }

    /// People name a pod as crictl and kubectl do. A whole name goes before a prefix of another pod's name.
    #[test]
    fn a_pod_is_found_by_what_people_call_it() {
        let root = root(&[
            ("abc1", "shop", "prod"),
            ("abc2", "shop", "test"),
            ("def3", "shop-2", "prod"),
            ("plain", "", ""),
            ("plainer", "", ""),
        ]);
        let find =
            |pod: &str| find(root.path(), pod, None).map(|entry| entry.id).map_err(|error| error.to_string());
        for (pod, id) in [
            ("abc1", "abc1"),
            ("shop-2", "def3"),
            ("test/shop", "abc2"),
            ("shop/test", "abc2"),
            ("d", "def3"),
            ("shop-", "def3"),
            ("plain", "plain"),
            ("plaine", "plainer"),
        ] {
            assert_eq!(find(pod), Ok(id.to_owned()), "{pod}");
        }
        let several = "\"shop\" can be any of: abc1 (prod/shop), abc2 (test/shop)";
        assert_eq!(find("shop"), Err(several.to_owned()));
        assert_eq!(find("ab").unwrap_err(), several.replace("\"shop\"", "\"ab\""));
        for nothing in ["", "/", "bc1", "prod/shops"] {
            let error = format!(
                "no pod {nothing:?}: `podshim ps` lists them, `podshim history` those that have ended"
            );
            assert_eq!(find(nothing), Err(error));
        }
    }

    /// N1: `web-10` is not ended because `web-1` is gone. What ends a pod takes its whole name, or an id; the short one that
    /// `podshim ps` shows is one, but not of an id that a person chose.
    #[test]
    fn found_n1_what_ends_a_pod_wants_its_whole_name() {
        let random = "0123456789abcdef".repeat(4);
        let root = root(&[
            (&random, "web-10", "prod"),
            ("def3", "shop", "prod"),
            ("abc1", "shop", "test"),
            ("my-long-named-task-10", "", ""),
        ]);
        let find = |pod: &str| {
            find_exactly(root.path(), pod, None).map(|entry| entry.id).map_err(|error| error.to_string())
        };
        for (pod, id) in [
            ("web-10", random.as_str()),
            ("prod/web-10", &random),
            (&random, &random),
            (&random[..13], &random),
            ("test/shop", "abc1"),
            ("abc1", "abc1"),
            ("my-long-named-task-10", "my-long-named-task-10"),
        ] {
            assert_eq!(find(pod), Ok(id.to_owned()), "{pod}");
        }
        for (beginning, meant) in [
            ("web-1", "prod/web-10"),
            ("w", "prod/web-10"),
            ("web-10/prod", "prod/web-10"),
            (&random[..12], "prod/web-10"),
            ("my-long-named-task-1", "my-long-named-task-10"),
            ("sho", "prod/shop, or test/shop"),
        ] {
            let error = find(beginning).unwrap_err();
            assert!(error.contains("takes its whole name or id"), "{beginning}: {error}");
            assert!(error.contains(&format!("(did you mean {meant}?)")), "{beginning}: {error}");
        }
        assert!(find("shop").unwrap_err().starts_with("\"shop\" can be any of: "));
        assert!(find("till").unwrap_err().starts_with("no pod \"till\": `podshim ps` lists them"));
        assert!(find("").is_err());
    }
}
