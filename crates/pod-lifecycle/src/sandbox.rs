//! The pause container as the tables know it: which one it is, and whether it is gone (K16).
//!
//! Owns that its end is handled once. Decides nothing: what a stop does with it is `rules::sandbox`.

use crate::interface::id::ContainerId;

/// The sandbox of a pod; a pod under ctr has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sandbox {
    id: Option<ContainerId>,
    life: SandboxLife,
}

/// Whether the pause process is gone, its namespaces with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SandboxLife {
    #[default]
    Here,
    /// It is gone, and the rules have not seen that yet.
    Gone,
    /// It is gone, and the pod's stop has begun.
    Handled,
}

impl Sandbox {
    /// The container, until it is deleted.
    pub(crate) fn id(&self) -> Option<&ContainerId> {
        self.id.as_ref()
    }

    /// K16: whether the pause process is gone, its namespaces with it.
    pub(crate) fn is_gone(&self) -> bool {
        self.life != SandboxLife::Here
    }

    /// Its create begins.
    pub(crate) fn create(&mut self, id: ContainerId) {
        self.id = Some(id);
    }

    /// Its create has failed: a sandbox that was never created has not ended.
    pub(crate) fn create_failed(&mut self) {
        self.id = None;
    }

    /// Its exit is final.
    pub(crate) fn exited(&mut self) {
        self.life = SandboxLife::Gone;
    }

    /// It is deleted; one that was never started ends with that.
    pub(crate) fn deleted(&mut self) {
        self.id = None;
        if self.life == SandboxLife::Here {
            self.life = SandboxLife::Gone;
        }
    }

    /// Whether it has ended since the last call.
    pub(crate) fn take_end(&mut self) -> bool {
        let ended = self.life == SandboxLife::Gone;
        if ended {
            self.life = SandboxLife::Handled;
        }
        ended
    }
}
