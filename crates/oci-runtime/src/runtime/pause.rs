//! `pause` and `resume`. If the runtime fails, podshim itself lets the processes run (K17).

use cgroups::{Cgroup, FreezeState};
use tracing::warn;

use super::command::Arguments;
use super::container::Container;
use super::error::{Operation, RuntimeError};

impl Container {
    pub(super) async fn runtime_pause(&self, cgroup: Option<&Cgroup>) -> Result<(), RuntimeError> {
        let before = cgroup.map(Cgroup::freeze_state);
        let mut arguments = Arguments::new("pause");
        arguments.push(&*self.id);
        let paused = self.run(Operation::Pause, arguments, None).await.map(drop);
        if paused.is_err() {
            self.thaw_again(cgroup, before);
        }
        paused
    }

    pub(super) async fn runtime_resume(&self, cgroup: Option<&Cgroup>) -> Result<(), RuntimeError> {
        let before = cgroup.map(Cgroup::freeze_state);
        let mut arguments = Arguments::new("resume");
        arguments.push(&*self.id);
        let resumed = self.run(Operation::Resume, arguments, None).await.map(drop);
        match (resumed, cgroup, before) {
            (Err(error), Some(cgroup), Some(FreezeState::Frozen | FreezeState::Freezing)) => {
                warn!(container = %self.id, %error, "the OCI runtime failed to resume the container: the shim thaws its cgroup itself");
                if self.thaw(cgroup) == FreezeState::Thawed { Ok(()) } else { Err(error) }
            }
            (resumed, ..) => resumed,
        }
    }

    /// Lets the container's processes run again if they ran `before` a call that failed.
    pub(super) fn thaw_again(&self, cgroup: Option<&Cgroup>, before: Option<FreezeState>) {
        if let (Some(cgroup), Some(FreezeState::Thawed)) = (cgroup, before)
            && cgroup.freeze_state() != FreezeState::Thawed
        {
            self.thaw(cgroup);
        }
    }

    /// Lets the container's processes run, and returns whether they do.
    fn thaw(&self, cgroup: &Cgroup) -> FreezeState {
        if let Err(error) = cgroup.thaw() {
            warn!(container = %self.id, %error, "the OCI runtime left the container frozen, and the shim cannot thaw it");
        }
        cgroup.freeze_state()
    }
}
