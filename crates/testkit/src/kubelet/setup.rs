//! The input of a kubelet: its version, the pod's policy, its containers and their order. Owns the line for it in a
//! scenario.

use std::fmt;
use std::time::Duration;

use pod_spec::RestartPolicy;

use crate::text::{parse_duration, show_duration};

/// The least time a kubelet leaves a container, whatever its preStop hook took (`minimumGracePeriodInSeconds`).
pub(super) const LEAST_GRACE: Duration = Duration::from_secs(2);

/// A kubelet and its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletSetup {
    /// What it knows of sidecars.
    pub version: KubeletVersion,
    /// The pod's restart policy.
    pub policy: RestartPolicy,
    /// The seed of what is left to chance: the order of kills, latencies.
    pub seed: u64,
    /// `terminationGracePeriodSeconds`.
    pub grace: Duration,
    /// The containers, in the order of the pod's spec.
    pub containers: Vec<PodContainer>,
}

/// What a kubelet knows of sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletVersion {
    /// 1.20: what has a role in the plan is a regular container.
    Unaware,
    /// 1.29 and later: inits and native sidecars are init containers.
    Aware,
}

/// A container of the pod's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContainer {
    /// Its name.
    pub name: String,
    /// Its place in the spec.
    pub part: SpecPart,
    /// How long its preStop hook runs, if it has one.
    pub hook: Option<Duration>,
    /// Whether it has a startup probe.
    pub has_startup_probe: bool,
    /// Its own restart policy (KEP-5307), in place of the pod's.
    pub own_policy: Option<RestartPolicy>,
}

/// The part of a pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecPart {
    /// `containers`.
    Regular,
    /// `initContainers`.
    Init,
    /// `initContainers` with `restartPolicy: Always`.
    Sidecar,
    /// Of `kubectl debug`: started once, and never again.
    Ephemeral,
}

impl PodContainer {
    /// A regular container without hook and probe.
    pub fn named(name: &str) -> Self {
        let (name, part) = (name.to_owned(), SpecPart::Regular);
        Self { name, part, hook: None, has_startup_probe: false, own_policy: None }
    }

    fn parse(word: &str) -> Result<Self, String> {
        let mut parts = word.split('/');
        let mut container = Self::named(parts.next().unwrap_or_default());
        for part in parts {
            match part.split_once('=') {
                None if part == "init" => container.part = SpecPart::Init,
                None if part == "sidecar" => container.part = SpecPart::Sidecar,
                None if part == "ephemeral" => container.part = SpecPart::Ephemeral,
                Some(("own", policy)) => container.own_policy = Some(parse_policy(policy)?),
                None if part == "startup" => container.has_startup_probe = true,
                Some(("hook", time)) => {
                    container.hook =
                        Some(parse_duration(time).ok_or_else(|| format!("{time:?} is no duration"))?);
                }
                _ => return Err(format!("unknown word {part:?} after a container")),
            }
        }
        Ok(container)
    }
}

impl KubeletSetup {
    /// By which policy a container is restarted.
    pub(super) fn policy_of(&self, container: usize) -> RestartPolicy {
        self.containers[container].own_policy.unwrap_or(self.policy)
    }

    /// Reads `unaware onfailure seed=7 grace=30s c0 c1/hook=2s`, or `aware ... c0/init c1/sidecar/startup c2`.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let [version, policy, rest @ ..] = words else {
            return Err("write `kubelet unaware|aware POLICY CONTAINER...`".to_owned());
        };
        let version = match *version {
            "unaware" => KubeletVersion::Unaware,
            "aware" => KubeletVersion::Aware,
            _ => return Err(format!("unknown kind of kubelet {version:?}")),
        };
        let policy = parse_policy(policy)?;
        let mut setup =
            Self { version, policy, seed: 0, grace: Duration::from_secs(30), containers: Vec::new() };
        for word in rest {
            match word.split_once('=').filter(|(key, _)| !key.contains('/')) {
                Some(("seed", seed)) => {
                    setup.seed = seed.parse().map_err(|_| format!("{seed:?} is no number"))?;
                }
                Some(("grace", time)) => {
                    setup.grace = parse_duration(time).ok_or_else(|| format!("{time:?} is no duration"))?;
                }
                Some(_) => return Err(format!("unknown word {word:?}")),
                None => setup.containers.push(PodContainer::parse(word)?),
            }
        }
        Ok(setup)
    }
}

/// Reads a policy's word.
///
/// # Errors
/// An unknown word.
pub fn parse_policy(word: &str) -> Result<RestartPolicy, String> {
    match word {
        "always" => Ok(RestartPolicy::Always),
        "onfailure" => Ok(RestartPolicy::OnFailure),
        "never" => Ok(RestartPolicy::Never),
        _ => Err(format!("{word:?} is none of always, onfailure, never")),
    }
}

fn policy_word(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Always => "always",
        RestartPolicy::OnFailure => "onfailure",
        RestartPolicy::Never => "never",
    }
}

impl fmt::Display for KubeletSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.version {
            KubeletVersion::Unaware => "unaware",
            KubeletVersion::Aware => "aware",
        };
        let policy = policy_word(self.policy);
        write!(f, "{version} {policy} seed={} grace={}", self.seed, show_duration(self.grace))?;
        self.containers.iter().try_for_each(|container| write!(f, " {container}"))
    }
}

impl fmt::Display for PodContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.part {
            SpecPart::Regular => {}
            SpecPart::Init => f.write_str("/init")?,
            SpecPart::Sidecar => f.write_str("/sidecar")?,
            SpecPart::Ephemeral => f.write_str("/ephemeral")?,
        }
        if let Some(policy) = self.own_policy {
            write!(f, "/own={}", policy_word(policy))?;
        }
        if self.has_startup_probe {
            f.write_str("/startup")?;
        }
        match self.hook {
            Some(hook) => write!(f, "/hook={}", show_duration(hook)),
            None => Ok(()),
        }
    }
}
