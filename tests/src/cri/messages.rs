//! The messages of CRI (`runtime.v1`), with the fields that the tests use. The tags are CRI's; a receiver skips a field that it
//! does not know. Owns no behaviour.
//!
//! A package with all of CRI's messages, and a compiler for them, took longer to build than all tests of a suite.

use std::collections::HashMap;

use prost::{Enumeration, Message};

/// The whole of a request that names a sandbox or a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Id {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// An empty message: a request without a filter, an answer that nothing is read of.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodSandboxConfig>,
    #[prost(string, tag = "2")]
    pub(super) runtime_handler: String,
}

/// What a sandbox shall be.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    pub(crate) log_directory: String,
    #[prost(map = "string, string", tag = "7")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) linux: Option<LinuxPodSandboxConfig>,
}

/// A sandbox's pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxMetadata {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its UID.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// How often the kubelet has recreated the sandbox.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub(crate) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<LinuxSandboxSecurityContext>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LinuxSandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NamespaceOption {
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub(crate) network: i32,
    #[prost(enumeration = "NamespaceMode", tag = "2")]
    pub(crate) pid: i32,
    #[prost(enumeration = "NamespaceMode", tag = "3")]
    pub(crate) ipc: i32,
    #[prost(string, tag = "4")]
    pub(crate) target_id: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) userns_options: Option<UserNamespace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum NamespaceMode {
    Pod = 0,
    Container = 1,
    Node = 2,
    /// That of another container of the pod.
    Target = 3,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UserNamespace {
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub(crate) mode: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) uids: Vec<IdMapping>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) gids: Vec<IdMapping>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct IdMapping {
    #[prost(uint32, tag = "1")]
    pub(crate) host_id: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) container_id: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) sandbox_config: Option<PodSandboxConfig>,
}

/// What a container shall be.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(crate) image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) envs: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "10")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(string, tag = "11")]
    pub(crate) log_path: String,
    #[prost(bool, tag = "12")]
    pub(crate) stdin: bool,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<LinuxContainerConfig>,
}

/// A container's name in its pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerMetadata {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How often the kubelet has recreated it.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(crate) image: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(message, repeated, tag = "6")]
    pub(crate) uid_mappings: Vec<IdMapping>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) gid_mappings: Vec<IdMapping>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LinuxContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) resources: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<LinuxContainerSecurityContext>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LinuxContainerResources {
    #[prost(int64, tag = "4")]
    pub(crate) memory_limit_in_bytes: i64,
    #[prost(int64, tag = "5")]
    pub(crate) oom_score_adj: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LinuxContainerSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) capabilities: Option<Capability>,
    #[prost(message, optional, tag = "3")]
    pub(crate) namespace_options: Option<NamespaceOption>,
    #[prost(int64, repeated, tag = "8")]
    pub(crate) supplemental_groups: Vec<i64>,
    #[prost(message, optional, tag = "16")]
    pub(crate) apparmor: Option<SecurityProfile>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Capability {
    #[prost(string, repeated, tag = "1")]
    pub(crate) add_capabilities: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SecurityProfile {
    #[prost(enumeration = "ProfileType", tag = "1")]
    pub(crate) profile_type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum ProfileType {
    RuntimeDefault = 0,
    Unconfined = 1,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StopContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    /// Seconds.
    #[prost(int64, tag = "2")]
    pub(super) timeout: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct UpdateContainerResourcesRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) linux: Option<LinuxContainerResources>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ExecSyncRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) cmd: Vec<String>,
    /// Seconds.
    #[prost(int64, tag = "3")]
    pub(super) timeout: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ExecSyncResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(super) exit_code: i32,
}

/// The request for a container's or a sandbox's status.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusOfRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(bool, tag = "2")]
    pub(super) verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<ContainerStatus>,
    #[prost(map = "string, string", tag = "2")]
    pub(super) info: HashMap<String, String>,
}

/// A container as containerd sees it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerStatus {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its name in the pod.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ContainerMetadata>,
    /// A [`ContainerState`].
    #[prost(enumeration = "ContainerState", tag = "3")]
    pub state: i32,
    /// When it was created, in nanoseconds since the epoch.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// When it was started, in nanoseconds since the epoch; 0 if it was not.
    #[prost(int64, tag = "5")]
    pub started_at: i64,
    /// When it ended, in nanoseconds since the epoch; 0 if it has not.
    #[prost(int64, tag = "6")]
    pub finished_at: i64,
    /// Its exit code.
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
    /// containerd's word for that state.
    #[prost(string, tag = "10")]
    pub reason: String,
    /// containerd's message for it.
    #[prost(string, tag = "11")]
    pub message: String,
}

/// The states of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// Not started.
    ContainerCreated = 0,
    /// Started.
    ContainerRunning = 1,
    /// Ended.
    ContainerExited = 2,
    /// containerd could not find out.
    ContainerUnknown = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<Container>,
}

/// A container in a list.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// That of its sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name in the pod.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    /// A [`ContainerState`].
    #[prost(enumeration = "ContainerState", tag = "6")]
    pub state: i32,
    /// When it was created, in nanoseconds since the epoch.
    #[prost(int64, tag = "7")]
    pub created_at: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ContainerStatsResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) stats: Option<ContainerStats>,
}

/// What containerd measured of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerStats {
    /// Of its processor time.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<CpuUsage>,
    /// Of its memory.
    #[prost(message, optional, tag = "3")]
    pub memory: Option<MemoryUsage>,
}

/// A container's processor time.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CpuUsage {
    /// Nanoseconds of one processor.
    #[prost(message, optional, tag = "2")]
    pub usage_core_nano_seconds: Option<UInt64Value>,
}

/// A container's memory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MemoryUsage {
    /// Bytes that the kernel could not take back.
    #[prost(message, optional, tag = "2")]
    pub working_set_bytes: Option<UInt64Value>,
}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<PodSandbox>,
}

/// A sandbox in a list.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandbox {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its pod.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// A [`PodSandboxState`].
    #[prost(enumeration = "PodSandboxState", tag = "3")]
    pub state: i32,
}

/// The states of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum PodSandboxState {
    /// It runs.
    SandboxReady = 0,
    /// It has ended.
    SandboxNotready = 1,
}

/// The status of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    /// The sandbox: CRI's message for it begins with the fields of one in a list.
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandbox>,
    /// JSON by name.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, repeated, tag = "3")]
    pub(super) runtime_handlers: Vec<RuntimeHandler>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RuntimeHandler {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) features: Option<RuntimeHandlerFeatures>,
}

/// What the kubelet may ask of a runtime handler.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RuntimeHandlerFeatures {
    /// Read-only mounts whose submounts are, too.
    #[prost(bool, tag = "1")]
    pub recursive_read_only_mounts: bool,
    /// User namespaces.
    #[prost(bool, tag = "2")]
    pub user_namespaces: bool,
}
