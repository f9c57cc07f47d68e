//! What a container's spec says of a further process of it, or why the OCI runtime has to make that.
//!
//! Owns the list of what podshim does itself: all else, in whatever release of the OCI spec it comes, is the OCI runtime's. Makes
//! nothing.

use std::ffi::CString;
use std::path::Path;

use libc::c_int;
use nix::sys::utsname::{UtsName, uname};
use serde_json::Value;

use crate::capabilities::bit_of;
use crate::field::{NotUnderstood, at, is_empty, list, not_done, only, text};
use crate::keyring::SessionKeyring;
use crate::request::{OF_CRUN, RUNTIMES, id_of, rlimits};

/// The namespaces that a process can join by one call, by the words of a spec.
const NAMESPACES: [(&str, c_int); 7] = [
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("ipc", libc::CLONE_NEWIPC),
    ("mount", libc::CLONE_NEWNS),
    ("network", libc::CLONE_NEWNET),
    ("pid", libc::CLONE_NEWPID),
    ("user", libc::CLONE_NEWUSER),
    ("uts", libc::CLONE_NEWUTS),
];

const OF_PROCESS: [&str; 11] = [
    "apparmorProfile",
    "args",
    "capabilities",
    "consoleSize",
    "cwd",
    "env",
    "noNewPrivileges",
    "oomScoreAdj",
    "rlimits",
    "terminal",
    "user",
];
const OF_USER: [&str; 3] = ["additionalGids", "gid", "uid"];
const OF_CAPABILITIES: [&str; 5] = ["ambient", "bounding", "effective", "inheritable", "permitted"];
/// What says nothing about a further process: groups, mounts and devices are there. Not `seccomp`, whose filter each process gets when it is made.
const OF_LINUX: [&str; 12] = [
    "cgroupsPath",
    "devices",
    "gidMappings",
    "maskedPaths",
    "mountLabel",
    "namespaces",
    "netDevices",
    "readonlyPaths",
    "resources",
    "rootfsPropagation",
    "sysctl",
    "uidMappings",
];

/// The most groups that a process has here; the kernel takes more.
const MOST_GROUPS: usize = 1024;

/// Further processes of one container: all of a request but the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execs {
    pub(super) namespaces: c_int,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) no_new_privileges: bool,
    pub(super) capabilities: Capabilities,
    /// The kernel's number, the soft and the hard limit.
    pub(super) limits: Vec<(u32, u64, u64)>,
    pub(super) oom_score: CString,
    pub(super) profile: CString,
    pub(super) keyring: CString,
    pub(super) directory: CString,
    pub(super) variables: Vec<CString>,
}

/// A process that podshim can make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest<'execs> {
    pub(super) execs: &'execs Execs,
    pub(super) arguments: Vec<CString>,
}

impl ExecRequest<'_> {
    /// For messages.
    pub(super) fn name(&self) -> String {
        self.arguments.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Sets of capabilities, a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) bounding: u64,
    pub(super) effective: u64,
    pub(super) inheritable: u64,
    pub(super) permitted: u64,
    pub(super) ambient: u64,
}

impl Execs {
    /// Reads the spec of a container of that id, which `runtime` has made with that keyring.
    ///
    /// # Errors
    /// What podshim does not do itself, for people.
    pub fn of(
        spec: &Value,
        id: &str,
        runtime: &Path,
        keyring: SessionKeyring,
    ) -> Result<Self, NotUnderstood> {
        if !joins_by_pidfd(&uname().map_err(|error| NotUnderstood::because(&error.to_string()))?) {
            return Err(NotUnderstood::because("a kernel before 5.8"));
        }
        if !runtime.file_name().is_some_and(|name| RUNTIMES.iter().any(|known| name == *known)) {
            return Err(NotUnderstood::because("an OCI runtime that is neither runc nor crun"));
        }
        let annotations = at(spec, "annotations").as_object().into_iter().flatten();
        let mut keys = annotations.map(|(key, _)| key);
        if let Some(key) = keys.find(|key| OF_CRUN.iter().any(|prefix| key.starts_with(prefix))) {
            return Err(not_done(&format!("annotation {key}")));
        }
        let linux = only(at(spec, "linux"), "linux.", &OF_LINUX)?;
        let process = only(at(spec, "process"), "process.", &OF_PROCESS)?;
        let user = only(at(process, "user"), "process.user.", &OF_USER)?;
        // Also 0 says something, and runc 1.1 does not do it.
        if !at(user, "umask").is_null() {
            return Err(not_done("process.user.umask"));
        }
        let keyring = match keyring {
            SessionKeyring::New => format!("_ses.{id}"),
            SessionKeyring::Inherited => String::new(),
        };
        Ok(Self {
            namespaces: namespaces(at(linux, "namespaces"))?,
            uid: id_of(user, "uid")?,
            gid: id_of(user, "gid")?,
            groups: groups(user)?,
            no_new_privileges: !is_empty(at(process, "noNewPrivileges")),
            capabilities: capabilities(process)?,
            limits: rlimits(at(process, "rlimits"))?,
            oom_score: match at(process, "oomScoreAdj") {
                Value::Null => CString::default(),
                score => {
                    let score = score.as_i64().ok_or_else(|| not_done("process.oomScoreAdj"))?;
                    c_string(&score.to_string(), "process.oomScoreAdj")?
                }
            },
            profile: match text(process, "apparmorProfile")? {
                "" => CString::default(),
                profile => c_string(&format!("exec {profile}"), "process.apparmorProfile")?,
            },
            keyring: c_string(&keyring, "the id")?,
            directory: match text(process, "cwd")? {
                directory if directory.starts_with('/') => c_string(directory, "process.cwd")?,
                _ => return Err(not_done("process.cwd that is not absolute")),
            },
            variables: variables(at(process, "env"))?,
        })
    }

    /// A process with that command line.
    ///
    /// # Errors
    /// It has no command, or one with a NUL byte.
    pub fn request(&self, command: &[String]) -> Result<ExecRequest<'_>, NotUnderstood> {
        if command.is_empty() {
            return Err(not_done("process.args without a command"));
        }
        let arguments = command.iter().map(|argument| c_string(argument, "process.args"));
        Ok(ExecRequest { execs: self, arguments: arguments.collect::<Result<_, _>>()? })
    }
}

/// Whether one call joins all namespaces of a process (Linux 5.8).
fn joins_by_pidfd(kernel: &UtsName) -> bool {
    let release = kernel.release().to_string_lossy();
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 8)
}

/// What of the node's it has not: the flags for one call.
fn namespaces(value: &Value) -> Result<c_int, NotUnderstood> {
    list(value, "linux.namespaces")?.iter().try_fold(0, |flags, entry| {
        let kind = text(entry, "type")?;
        let known = NAMESPACES.iter().find(|(word, _)| *word == kind);
        known.map(|(_, flag)| flags | flag).ok_or_else(|| not_done(&format!("a {kind:?} namespace")))
    })
}

fn groups(user: &Value) -> Result<Vec<u32>, NotUnderstood> {
    let field = "process.user.additionalGids";
    let groups = list(at(user, "additionalGids"), field)?;
    if groups.len() > MOST_GROUPS {
        return Err(not_done(field));
    }
    let number = |group: &Value| group.as_u64().and_then(|group| u32::try_from(group).ok());
    groups.iter().map(|group| number(group).ok_or_else(|| not_done(field))).collect()
}

/// Without a word of them runc 1.1 and crun 1.28 leave a process none, runc 1.3 those that the shim has.
fn capabilities(process: &Value) -> Result<Capabilities, NotUnderstood> {
    let sets = at(process, "capabilities");
    if sets.is_null() {
        return Err(not_done("a process without process.capabilities"));
    }
    let sets = only(sets, "process.capabilities.", &OF_CAPABILITIES)?;
    let set = |key: &str| {
        list(at(sets, key), "process.capabilities")?.iter().try_fold(0, |set, name| {
            let name = name.as_str().unwrap_or_default();
            bit_of(name).map(|bit| set | bit).ok_or_else(|| not_done(&format!("the capability {name:?}")))
        })
    };
    Ok(Capabilities {
        bounding: set("bounding")?,
        effective: set("effective")?,
        inheritable: set("inheritable")?,
        permitted: set("permitted")?,
        ambient: set("ambient")?,
    })
}

/// Of variables with one name the runtimes keep different ones.
fn variables(value: &Value) -> Result<Vec<CString>, NotUnderstood> {
    let mut names = std::collections::BTreeSet::new();
    let variable = |variable: &'_ Value| {
        let text = variable.as_str().unwrap_or_default();
        match text.split_once('=') {
            Some((name, _)) if !name.is_empty() && names.insert(name.to_owned()) => {
                c_string(text, "process.env")
            }
            _ => Err(not_done(&format!("process.env {:?}", text.split('=').next().unwrap_or_default()))),
        }
    };
    list(value, "process.env")?.iter().map(variable).collect()
}

fn c_string(text: &str, field: &str) -> Result<CString, NotUnderstood> {
    CString::new(text).map_err(|_| not_done(field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: &Value) -> Result<Execs, String> {
        Execs::of(spec, "app", Path::new("/usr/sbin/runc"), SessionKeyring::New)
            .map_err(|error| error.to_string())
    }

    fn spec() -> Value {
        json!({
            "process": {
                "cwd": "/data", "env": ["PATH=/bin", "A=1=2"], "args": ["sleep"], "terminal": false,
                "user": {"uid": 1000, "gid": 100, "additionalGids": [7, 8]},
                "capabilities": {"bounding": ["CAP_CHOWN", "CAP_KILL"], "permitted": ["CAP_KILL"]},
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 6}],
                "noNewPrivileges": true, "oomScoreAdj": -5, "apparmorProfile": "usual",
            },
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "network", "path": "/proc/7/ns/net"}],
                "resources": {"memory": {"limit": 5}}, "maskedPaths": ["/proc/kcore"],
            },
        })
    }

    #[test]
    fn all_that_it_says_of_a_process_is_read() {
        let execs = of(&spec()).unwrap();
        assert_eq!(execs.namespaces, libc::CLONE_NEWPID | libc::CLONE_NEWNET);
        assert_eq!((execs.uid, execs.gid, execs.groups.as_slice()), (1000, 100, [7, 8].as_slice()));
        assert!(execs.no_new_privileges);
        assert_eq!((execs.capabilities.bounding, execs.capabilities.permitted), (0b10_0001, 0b10_0000));
        assert_eq!(execs.limits, [(7, 5, 6)]);
        assert_eq!(execs.oom_score.as_c_str(), c"-5");
        assert_eq!(execs.profile.as_c_str(), c"exec usual");
        assert_eq!(execs.keyring.as_c_str(), c"_ses.app");
        assert_eq!(execs.variables, [c"PATH=/bin".to_owned(), c"A=1=2".to_owned()]);
        let request = execs.request(&["a".to_owned(), "b c".to_owned()]).unwrap();
        assert_eq!(request.arguments, [c"a".to_owned(), c"b c".to_owned()]);
        assert!(execs.request(&[]).is_err());
    }

    #[test]
    fn what_it_does_not_do_is_named() {
        for (pointer, value, name) in [
            ("/linux", json!({"seccomp": {"defaultAction": "SCMP_ACT_ERRNO"}}), "linux.seccomp"),
            ("/linux", json!({"personality": {"domain": "LINUX32"}}), "linux.personality"),
            ("/linux/namespaces", json!([{"type": "time"}]), "a \"time\" namespace"),
            ("/process/selinuxLabel", json!("a_t"), "process.selinuxLabel"),
            ("/process/user/umask", json!(0), "process.user.umask"),
            ("/process/scheduler", json!({"policy": "SCHED_FIFO"}), "process.scheduler"),
            ("/process/capabilities/effective", json!(["CAP_NEW"]), "the capability \"CAP_NEW\""),
            ("/process/capabilities", Value::Null, "a process without process.capabilities"),
            ("/process/env", json!(["A=1", "A=2"]), "process.env \"A\""),
            ("/process/env", json!(["nothing"]), "process.env \"nothing\""),
            ("/process/cwd", json!("data"), "process.cwd that is not absolute"),
            ("/annotations", json!({"run.oci.handler": "krun"}), "annotation run.oci.handler"),
        ] {
            let mut spec = spec();
            let (above, key) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(above).unwrap()[key] = value;
            assert_eq!(of(&spec).unwrap_err(), format!("{name} is not done by podshim itself"));
        }
        let other = Execs::of(&spec(), "app", Path::new("/opt/runsc"), SessionKeyring::New).unwrap_err();
        assert!(other.to_string().contains("neither runc nor crun"), "{other}");
    }
}
