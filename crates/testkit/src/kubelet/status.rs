//! What CRI lists of a pod: the containers that were created, and what is known of each. Owns only the list.

use pod_lifecycle::{ContainerId, PodTime};

/// A container as CRI lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) id: ContainerId,
    /// Which of the pod's containers it is.
    pub(crate) container: usize,
    pub(crate) image: u32,
    pub(crate) state: State,
    pub(crate) since: PodTime,
    /// CRI sends the stop signal only once to each container.
    pub(crate) was_signalled: bool,
}

/// CRI's states of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// CreateContainer has ended, StartContainer has not: the shim may not know the container yet.
    Created,
    Running,
    Exited {
        code: u32,
        at: PodTime,
    },
}

/// All containers, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct List(Vec<Listed>);

impl List {
    pub(crate) fn add(&mut self, listed: Listed) {
        self.0.push(listed);
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Option<&Listed> {
        self.0.iter().find(|listed| listed.id == *id)
    }

    pub(crate) fn get_mut(&mut self, id: &ContainerId) -> Option<&mut Listed> {
        self.0.iter_mut().find(|listed| listed.id == *id)
    }

    /// The newest container of a name, which a kubelet calls the status of the container.
    pub(crate) fn newest(&self, container: usize) -> Option<&Listed> {
        self.0.iter().rfind(|listed| listed.container == container)
    }

    pub(crate) fn newest_dead(&self, container: usize) -> Option<&Listed> {
        let dead = |listed: &&Listed| matches!(listed.state, State::Exited { .. });
        self.0.iter().rfind(|listed| listed.container == container && dead(listed))
    }

    pub(crate) fn running(&self) -> Vec<ContainerId> {
        let running = self.0.iter().filter(|listed| listed.state == State::Running);
        running.map(|listed| listed.id.clone()).collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Listed> {
        self.0.iter()
    }

    /// Removes the dead containers of a name from the list.
    pub(crate) fn forget_dead(&mut self, container: usize) -> bool {
        let before = self.0.len();
        self.0
            .retain(|listed| listed.container != container || !matches!(listed.state, State::Exited { .. }));
        self.0.len() != before
    }
}
