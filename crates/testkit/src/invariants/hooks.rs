//! When a hook may run, and when a stop signal may come before its end (H1, H2, H4).

use pod_lifecycle::{ContainerId, Hook};
use pod_spec::{Role, Signal, ZeroGrace};

use super::picture::Container;
use super::{Invariants, Verdict};

impl Invariants {
    /// H1, H2, H4: a hook runs once, in a program that runs and has got no stop signal yet.
    pub(super) fn may_run_hook(&mut self, id: &ContainerId, hook: Hook) -> Verdict {
        let container = &self.containers[id];
        if !container.runs_program() || !container.begun {
            return self.violated(format!("the {hook} hook of {id} runs without its program (H4)"));
        }
        if container.stop_signals > 0 || container.killed {
            return self.violated(format!("the {hook} hook of {id} runs after its stop signal (H2)"));
        }
        let sidecar = container.role == Some(Role::Sidecar);
        if hook == Hook::PreStop && sidecar && !self.may_end(id, Signal::TERM) {
            return self
                .violated(format!("the {hook} hook of {id} runs while a member that needs it runs (H2)"));
        }
        if container.hook.is_some() || container.hooks_run.contains(&hook) {
            return self.violated(format!("the {hook} hook of {id} runs twice (H1, H2)"));
        }
        if let Some(container) = self.containers.get_mut(id) {
            container.hook = Some(hook);
            container.hook_since = self.now;
            container.interrupted |= hook != Hook::Migrate;
            container.hooks_run.push(hook);
        }
        Ok(())
    }

    /// H1, H2: a stop signal comes after the hooks that have begun, unless no time is left for them.
    pub(super) fn may_overtake_hook(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let budget_over = self.budget_is_over();
        let own_grace = self.member(&container.name).is_some_and(|member| member.grace.is_some())
            || self.now >= container.hook_since + self.pod_grace();
        // K11: with `order` a SIGKILL to any container hurries the whole stop.
        let ordered = self.plan.as_ref().is_some_and(|plan| plan.settings.zero_grace == ZeroGrace::Order);
        let asked = |(other, container): (&ContainerId, &Container)| {
            (ordered || other == id) && (container.caller_killed || self.is_asked_to_kill(other))
        };
        let hurried = self.containers.iter().any(asked);
        match container.hook {
            Some(hook)
                if hook != Hook::Migrate
                    && !(budget_over || own_grace || hurried || container.gate_failed) =>
            {
                self.violated(format!("{id} gets its stop signal while its {hook} hook runs (H1, H2)"))
            }
            _ => Ok(()),
        }
    }
}
