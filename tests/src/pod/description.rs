//! A pod that is to be run: the builder, and what CRI is asked for it. Never calls containerd.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Program;
use crate::cri::{
    Capability, ContainerConfig, ContainerMetadata, IdMapping, ImageSpec, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, Mount, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    ProfileType, SecurityProfile, UserNamespace,
};
use crate::program::{Confinement, LOG, SHARED_DIRECTORY};

/// The namespace of all pods of the tests, as Kubernetes would have it.
pub(super) const NAMESPACE: &str = "e2e";

/// A pod's name, unique among the tests that run at the same time (one process each).
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Which pid namespace the containers of a pod have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// One each (the kubelet's default).
    #[default]
    Container,
    /// One for all (`shareProcessNamespace`).
    Pod,
    /// The node's (`hostPID`).
    Node,
}

/// Which network and IPC namespaces a pod has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkAndIpc {
    /// Its own.
    #[default]
    Pod,
    /// The node's (`hostNetwork` and `hostIPC`).
    Node,
}

/// A pod to be run.
#[derive(Clone, Debug)]
pub struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    namespace: String,
    annotations: HashMap<String, String>,
    pub(super) programs: Vec<Program>,
    pid_namespace: PidNamespace,
    network_and_ipc: NetworkAndIpc,
    host_ids: Option<u32>,
    grace: Option<Duration>,
    pub(super) cgroup_parent: Option<String>,
}

impl Pod {
    /// A pod without annotations and containers. The name is made unique.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let uid = unique(name);
        Self {
            name: uid.clone(),
            uid,
            namespace: NAMESPACE.to_owned(),
            annotations: HashMap::new(),
            programs: Vec::new(),
            pid_namespace: PidNamespace::default(),
            network_and_ipc: NetworkAndIpc::default(),
            host_ids: None,
            grace: None,
            cgroup_parent: None,
        }
    }

    /// Gives it this name, which another pod may have too, as the successor of a deleted pod has: their UIDs differ.
    #[must_use]
    pub fn called(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Claims to be a pod that an API server has.
    #[must_use]
    pub fn claims(mut self, namespace: &str, name: &str, uid: &str) -> Self {
        (self.namespace, self.name, self.uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        self
    }

    /// The pod's UID, unique.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The annotation `podshim.io/<key>`.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(format!("podshim.io/{key}"), value.to_owned());
        self
    }

    /// An annotation of the pod that is not podshim's.
    #[must_use]
    pub fn annotate_with(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a container. Nothing is created before [`super::RunningPod::create`].
    #[must_use]
    pub fn container(mut self, program: Program) -> Self {
        self.programs.push(program);
        self
    }

    /// The kubelet's termination grace period (whole seconds), annotated on every container as the kubelet does (F8).
    #[must_use]
    pub fn kubelet_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// The containers' pid namespace.
    #[must_use]
    pub fn pid_namespace(mut self, pid_namespace: PidNamespace) -> Self {
        self.pid_namespace = pid_namespace;
        self
    }

    /// The pod's cgroup, instead of the default one below the instance's.
    #[must_use]
    pub fn cgroup_parent(mut self, path: &str) -> Self {
        self.cgroup_parent = Some(path.to_owned());
        self
    }

    /// Sets which network and IPC namespaces it has.
    #[must_use]
    pub fn network_and_ipc(mut self, namespaces: NetworkAndIpc) -> Self {
        self.network_and_ipc = namespaces;
        self
    }

    /// A user namespace for the pod (`hostUsers: false`): its ids 0 to 65535 are the node's from `first` on.
    #[must_use]
    pub fn user_namespace(mut self, first: u32) -> Self {
        self.host_ids = Some(first);
        self
    }

    fn namespaces(&self) -> NamespaceOption {
        let pid = match self.pid_namespace {
            PidNamespace::Container => NamespaceMode::Container,
            PidNamespace::Pod => NamespaceMode::Pod,
            PidNamespace::Node => NamespaceMode::Node,
        };
        let userns_options = self.host_ids.is_some().then(|| UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: self.id_mappings(),
            gids: self.id_mappings(),
        });
        let others = match self.network_and_ipc {
            NetworkAndIpc::Pod => NamespaceMode::Pod,
            NetworkAndIpc::Node => NamespaceMode::Node,
        };
        NamespaceOption {
            network: others.into(),
            pid: pid.into(),
            ipc: others.into(),
            userns_options,
            ..NamespaceOption::default()
        }
    }

    fn id_mappings(&self) -> Vec<IdMapping> {
        let mapping = |host_id| IdMapping { host_id, container_id: 0, length: 65536 };
        self.host_ids.map(mapping).into_iter().collect()
    }

    pub(super) fn sandbox_config(&self, directory: &std::path::Path, cgroup: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid.clone(),
                namespace: self.namespace.clone(),
                attempt: 0,
            }),
            log_directory: directory.join("output").to_string_lossy().into_owned(),
            annotations: self.annotations.clone(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup.to_owned(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                }),
            }),
        }
    }

    pub(super) fn container_config(
        &self,
        program: &Program,
        attempt: u32,
        directory: &std::path::Path,
    ) -> ContainerConfig {
        let mut annotations: HashMap<String, String> = program.annotations().iter().cloned().collect();
        annotations.insert("io.kubernetes.container.restartCount".to_owned(), attempt.to_string());
        if let Some(grace) = self.grace {
            annotations
                .insert("io.kubernetes.pod.terminationGracePeriod".to_owned(), grace.as_secs().to_string());
        }
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: program.name().to_owned(), attempt }),
            image: Some(ImageSpec { image: program.image().to_owned() }),
            command: program.command(&format!("{SHARED_DIRECTORY}/{LOG}")),
            mounts: [(directory, SHARED_DIRECTORY)]
                .into_iter()
                .chain(program.mounts().iter().map(|(node_path, path)| (node_path.as_path(), path.as_str())))
                .map(|(node_path, path)| Mount {
                    container_path: path.to_owned(),
                    host_path: node_path.to_string_lossy().into_owned(),
                    // As the kubelet does: without the mappings the pod's root could not write to files of the node's
                    // root.
                    uid_mappings: self.id_mappings(),
                    gid_mappings: self.id_mappings(),
                })
                .collect(),
            envs: program
                .variables()
                .iter()
                .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() })
                .collect(),
            annotations,
            stdin: program.has_stdin(),
            log_path: format!("{}.{attempt}.log", program.name()),
            linux: Some(LinuxContainerConfig {
                resources: Some(LinuxContainerResources {
                    memory_limit_in_bytes: program.memory_limit_bytes().unwrap_or_default(),
                    oom_score_adj: program.own_oom_score(),
                }),
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    supplemental_groups: program.groups().to_vec(),
                    capabilities: Some(Capability {
                        add_capabilities: program.added_capabilities().to_vec(),
                    }),
                    apparmor: match program.confinement() {
                        Confinement::ProfileOfNode => None,
                        Confinement::None => {
                            Some(SecurityProfile { profile_type: ProfileType::Unconfined.into() })
                        }
                    },
                }),
            }),
        }
    }
}
