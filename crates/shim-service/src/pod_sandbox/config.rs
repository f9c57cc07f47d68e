//! CRI's `runtime.v1.PodSandboxConfig`, as CreateSandbox carries it (CONTRACT §5).
//!
//! Owns reading the fields that podshim needs, by their numbers. Generated types would be of the kubelet's whole API.

use std::collections::BTreeMap;
use std::path::PathBuf;

use own_processes::{PodRoot, Sharing};
use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::empty::Empty;
use protobuf::{Message, UnknownValueRef};

use super::error::{SandboxError, TYPE};

/// `NamespaceMode`.
const POD: u64 = 0;
const NODE: u64 = 2;

/// What CRI says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodConfig {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) hostname: String,
    pub(crate) dns: Dns,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) cgroup_parent: String,
    pub(crate) sysctls: BTreeMap<String, String>,
    pub(crate) namespaces: Namespaces,
}

/// `DNSConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dns {
    pub(crate) servers: Vec<String>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<String>,
}

/// `NamespaceOption`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Namespaces {
    pub(crate) network: Sharing,
    pub(crate) ipc: Sharing,
    pub(crate) pid: PidSharing,
    pub(crate) user: UserSharing,
}

/// Which user namespace the containers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserSharing {
    /// The node's.
    Node,
    /// One for all, that of the pod's network.
    Pod(PodRoot),
    /// One whose ids do not say who root is.
    WithoutRoot,
    /// What no pod can have.
    Unknown,
}

/// Which pid namespace the containers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PidSharing {
    /// One for all.
    Pod,
    /// Each its own.
    Container,
    /// The node's.
    Node,
}

impl Default for Namespaces {
    /// Without CRI, which alone makes networks. In CRI's message an absent number is POD, also for the pid namespace.
    fn default() -> Self {
        Self {
            network: Sharing::Node,
            ipc: Sharing::Pod,
            pid: PidSharing::Container,
            user: UserSharing::Node,
        }
    }
}

impl PodConfig {
    /// A pod of defaults, for a caller without CRI (`ctr sandboxes run`): in the network that it names, if it names one.
    pub(crate) fn without_cri(netns_path: &str) -> Self {
        let network = if netns_path.is_empty() { Sharing::Node } else { Sharing::Pod };
        Self { namespaces: Namespaces { network, ..Namespaces::default() }, ..Self::default() }
    }

    /// Reads the message; `None` without one.
    ///
    /// # Errors
    /// Another message, or one that cannot be read.
    pub(crate) fn of(options: Option<&Any>) -> Result<Option<Self>, SandboxError> {
        let Some(any) = options.filter(|any| !any.type_url.is_empty()) else { return Ok(None) };
        if any.type_url.rsplit('/').next() != Some(TYPE) {
            return Err(SandboxError::OtherOptions { type_url: any.type_url.clone() });
        }
        Self::read(&any.value).map(Some).ok_or(SandboxError::Options)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let config = Fields::read(bytes)?;
        let metadata = config.message(1)?;
        let dns = config.message(4)?;
        let linux = config.message(8)?;
        let security = linux.message(2)?;
        Some(Self {
            name: metadata.text(1)?,
            uid: metadata.text(2)?,
            namespace: metadata.text(3)?,
            hostname: config.text(2)?,
            dns: Dns { servers: dns.texts(1)?, searches: dns.texts(2)?, options: dns.texts(3)? },
            annotations: config.map(7)?,
            cgroup_parent: linux.text(1)?,
            sysctls: linux.map(3)?,
            namespaces: namespaces(&security.message(1)?)?,
        })
    }

    /// CRI's network namespace, of a pod that is not in the node's. CRI makes it before CreateSandbox.
    ///
    /// # Errors
    /// The pod needs a namespace of its own and the request names none.
    pub(crate) fn network(&self, path: &str) -> Result<Option<PathBuf>, SandboxError> {
        match (self.namespaces.network, path) {
            (Sharing::Node, _) => Ok(None),
            (Sharing::Pod, "") => Err(SandboxError::NoNetwork),
            (Sharing::Pod, path) => Ok(Some(PathBuf::from(path))),
        }
    }
}

fn namespaces(options: &Fields) -> Option<Namespaces> {
    let sharing = |number| if options.number(number) == NODE { Sharing::Node } else { Sharing::Pod };
    let user = options.message(5)?;
    Some(Namespaces {
        network: sharing(1),
        pid: match options.number(2) {
            POD => PidSharing::Pod,
            NODE => PidSharing::Node,
            _ => PidSharing::Container,
        },
        ipc: sharing(3),
        user: match user.number(1) {
            // Absent: none, as before there were any.
            _ if !options.has(5) => UserSharing::Node,
            POD => match (node_id_of_root(&user, 2)?, node_id_of_root(&user, 3)?) {
                (Some(uid), Some(gid)) => UserSharing::Pod(PodRoot { uid, gid }),
                _ => UserSharing::WithoutRoot,
            },
            NODE => UserSharing::Node,
            _ => UserSharing::Unknown,
        },
    })
}

/// In `IDMapping`s: which id of the node is 0 in the namespace.
fn node_id_of_root(user: &Fields, number: u32) -> Option<Option<u32>> {
    let mappings: Vec<_> = user.bytes(number).map(Fields::read).collect::<Option<_>>()?;
    let root = mappings.iter().find(|mapping| mapping.number(2) == 0 && mapping.number(3) > 0);
    root.map(|mapping| u32::try_from(mapping.number(1)).ok()).map_or(Some(None), |id| Some(Some(id?)))
}

/// The fields of any message. Parsed as `Empty`, which knows no field, it keeps them all.
struct Fields(Empty);

impl Fields {
    fn read(bytes: &[u8]) -> Option<Self> {
        Empty::parse_from_bytes(bytes).ok().map(Self)
    }

    fn values(&self, number: u32) -> impl Iterator<Item = UnknownValueRef<'_>> {
        let fields = self.0.special_fields.unknown_fields().iter();
        fields.filter(move |(found, _)| *found == number).map(|(_, value)| value)
    }

    fn has(&self, number: u32) -> bool {
        self.values(number).next().is_some()
    }

    /// 0 if it is absent, as proto3 has it.
    fn number(&self, number: u32) -> u64 {
        let varint = |value| match value {
            UnknownValueRef::Varint(value) => Some(value),
            _ => None,
        };
        self.values(number).filter_map(varint).last().unwrap_or_default()
    }

    fn bytes(&self, number: u32) -> impl Iterator<Item = &[u8]> {
        self.values(number).filter_map(|value| match value {
            UnknownValueRef::LengthDelimited(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// `None`: not UTF-8.
    fn texts(&self, number: u32) -> Option<Vec<String>> {
        self.bytes(number).map(|bytes| String::from_utf8(bytes.to_vec()).ok()).collect()
    }

    fn text(&self, number: u32) -> Option<String> {
        self.texts(number).map(|texts| texts.into_iter().next_back().unwrap_or_default())
    }

    /// An empty one if it is absent.
    fn message(&self, number: u32) -> Option<Self> {
        Self::read(self.bytes(number).last().unwrap_or_default())
    }

    fn map(&self, number: u32) -> Option<BTreeMap<String, String>> {
        let mut map = BTreeMap::new();
        for bytes in self.bytes(number) {
            let entry = Self::read(bytes)?;
            map.insert(entry.text(1)?, entry.text(2)?);
        }
        Some(map)
    }
}
