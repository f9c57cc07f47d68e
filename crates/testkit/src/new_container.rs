//! A container to create, as scenarios write it and a kubelet asks for it.

use std::fmt;
use std::time::Duration;

use pod_lifecycle::{ContainerId, KubeletHook, KubeletType, Origin, PidNamespace, StartBarrier};

use crate::text::{parse_duration, show_duration};

/// A container to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContainer {
    /// Its name in the plan.
    pub name: String,
    /// Its id; the name unless another is given.
    pub id: ContainerId,
    /// `io.kubernetes.container.type`.
    pub kubelet_type: Option<KubeletType>,
    /// Whether its init is PID 1.
    pub pid_namespace: PidNamespace,
    /// The kubelet's terminationGracePeriod annotation.
    pub kubelet_grace: Option<Duration>,
    /// Whether its kubelet runs a preStop hook, if a kubelet created it.
    pub kubelet: Option<KubeletHook>,
    /// The `oom_score_adj` of its spec.
    pub oom_score_adj: Option<i32>,
    /// Whether it starts from its program or is restored.
    pub origin: Origin,
    /// Whether it was behind a start barrier.
    pub start_barrier: StartBarrier,
}

impl NewContainer {
    /// An ordinary container whose id is its name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            id: name.into(),
            kubelet_type: None,
            pid_namespace: PidNamespace::Private,
            kubelet_grace: None,
            kubelet: None,
            oom_score_adj: None,
            origin: Origin::Program,
            start_barrier: StartBarrier::None,
        }
    }

    /// The same container in the PID namespace of the pod.
    #[must_use]
    pub fn sharing_pids(mut self) -> Self {
        self.pid_namespace = PidNamespace::Shared;
        self
    }

    /// Reads what follows `create`.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut words = words.iter();
        let mut new = Self::named(words.next().ok_or("a name is missing")?);
        while let Some(word) = words.next() {
            match *word {
                "as" => new.id = (*words.next().ok_or("an id is missing")?).into(),
                "type=init" => new.kubelet_type = Some(KubeletType::Init),
                "type=regular" => new.kubelet_type = Some(KubeletType::Regular),
                "type=ephemeral" => new.kubelet_type = Some(KubeletType::Ephemeral),
                "kubelet" => new.kubelet = Some(KubeletHook::None),
                "kubelet-hook" => new.kubelet = Some(KubeletHook::PreStop),
                "barrier" => new.start_barrier = StartBarrier::Open,
                "from-checkpoint" => new.origin = Origin::Checkpoint,
                "shared-pid" => new.pid_namespace = PidNamespace::Shared,
                _ => {
                    if let Some(score) = word.strip_prefix("oom-score=") {
                        new.oom_score_adj =
                            Some(score.parse().map_err(|_| format!("{score:?} is no score"))?);
                        continue;
                    }
                    let grace = word.strip_prefix("kubelet-grace=").and_then(parse_duration);
                    new.kubelet_grace = Some(grace.ok_or_else(|| format!("unknown word {word:?}"))?);
                }
            }
        }
        Ok(new)
    }
}

impl fmt::Display for NewContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.id.as_str() != self.name {
            write!(f, " as {}", self.id)?;
        }
        match self.kubelet_type {
            None => {}
            Some(KubeletType::Init) => f.write_str(" type=init")?,
            Some(KubeletType::Regular) => f.write_str(" type=regular")?,
            Some(KubeletType::Ephemeral) => f.write_str(" type=ephemeral")?,
        }
        match self.kubelet {
            None => {}
            Some(KubeletHook::None) => f.write_str(" kubelet")?,
            Some(KubeletHook::PreStop) => f.write_str(" kubelet-hook")?,
        }
        if self.pid_namespace == PidNamespace::Shared {
            f.write_str(" shared-pid")?;
        }
        if self.origin == Origin::Checkpoint {
            f.write_str(" from-checkpoint")?;
        }
        if self.start_barrier == StartBarrier::Open {
            f.write_str(" barrier")?;
        }
        if let Some(score) = self.oom_score_adj {
            write!(f, " oom-score={score}")?;
        }
        match self.kubelet_grace {
            Some(grace) => write!(f, " kubelet-grace={}", show_duration(grace)),
            None => Ok(()),
        }
    }
}
