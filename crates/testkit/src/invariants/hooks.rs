//! When a hook may run, and when a stop signal may come before its end (H1, H2, H4).

use pod_lifecycle::{ContainerId, Hook};
use pod_spec::{Role, Signal};

use super::picture::Container;
use super::stop::Cause;
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
        // T12: in the next stop all run again.
        let again = container.hooks_run.contains(&hook) && self.is_read;
        if container.hook.is_some() || again {
            return self.violated(format!("the {hook} hook of {id} runs twice (H1, H2)"));
        }
        let own_time = self.own_time(id);
        let is_replaced = self.containers.get(id).is_some_and(|container| self.may_be_replaced(container));
        if let Some(container) = self.containers.get_mut(id) {
            // V4: its end goes on, whatever becomes of the one that has taken over.
            container.is_replaced |= is_replaced && hook == Hook::PreStop && self.stop.is_none();
            if container.ends_since.is_none() && hook != Hook::Migrate {
                (container.ends_since, container.own_time) = (Some(self.now), own_time);
            }
            container.hook = Some(hook);
            container.interrupted |= hook != Hook::Migrate;
            container.hooks_run.push(hook);
        }
        Ok(())
    }

    /// H1, H2: a stop signal comes after all hooks that the plan has, unless no time is left for them.
    pub(super) fn may_skip_hooks(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let Some(member) = self.member(&container.name).filter(|_| self.is_read) else { return Ok(()) };
        let zero_grace = self.stop.is_some_and(|stop| stop.had_zero_grace);
        let hurried = container.caller_killed
            || self.is_asked_to_kill(id)
            || zero_grace
            || self.budget_is_over()
            || self.may_have_last_signal(container);
        // T8: its own time may be over.
        let own_time = member.grace.is_some() || container.hook.is_some();
        let ends_anyway = container.ends_for_group || container.is_replaced;
        if hurried || own_time || ends_anyway || !container.is_untouched() {
            return Ok(());
        }
        // At the moment at which the pod completes the sidecar's own turn may come first.
        let completes =
            self.stop.is_some_and(|stop| stop.cause == Cause::Completed && stop.since == self.now);
        let terminates = (self.stop.is_some() && !completes) || container.role == Some(Role::Main);
        let due = [(&member.on_terminate, Hook::OnTerminate), (&member.pre_stop, Hook::PreStop)];
        let skipped = due.iter().find(|(command, hook)| {
            command.is_some() && !container.hooks_run.contains(hook) && (*hook == Hook::PreStop || terminates)
        });
        match skipped {
            Some((_, hook)) => {
                self.violated(format!("{id} gets its stop signal without its {hook} hook (H1, H2)"))
            }
            None => Ok(()),
        }
    }

    /// V4, H4: what was replaced before its start had ended has its stop signal from before the pod's stop.
    pub(super) fn note_replaced_in_start(&mut self) {
        let is_replaced = |it: &Container| it.is_starting && self.may_be_replaced(it);
        let ids: Vec<_> =
            self.containers.iter().filter(|(_, it)| is_replaced(it)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.containers.entry(id).and_modify(|container| container.is_replaced = true);
        }
    }

    /// H1, H2: a stop signal comes after the hooks that have begun, unless no time is left for them.
    pub(super) fn may_overtake_hook(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let budget_over = self.budget_is_over()
            || self.may_have_last_signal(container)
            || self.stop.is_some_and(|stop| stop.had_zero_grace);
        // A stop that came later may give it less.
        let own_time = container.own_time.min(self.own_time(id));
        let own_time = container.turn_time.map_or(own_time, |turn| turn.min(own_time));
        let own_grace = self.member(&container.name).is_some_and(|member| member.grace.is_some())
            || container.ends_since.is_some_and(|since| self.now >= since + own_time);
        let hurried = container.caller_killed || self.is_asked_to_kill(id);
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

    /// T17, T5: the figure of the moment at which the turn comes of a sidecar whose hook runs.
    pub(super) fn note_turns(&mut self) {
        let is_new = |it: &Container| {
            let waits = it.role == Some(Role::Sidecar) && it.hook.is_some() && it.turn_time.is_none();
            waits && self.stop.is_some() && self.turn_has_come(it)
        };
        let new: Vec<_> =
            self.containers.iter().filter(|(_, it)| is_new(it)).map(|(id, _)| id.clone()).collect();
        for id in new {
            let time = self.own_time(&id);
            self.containers.entry(id).and_modify(|container| container.turn_time = Some(time));
        }
    }

    /// T3, T8: the turn of a sidecar may pass and come again while its hook runs, as may a stop of it alone (T16): its time begins then.
    pub(super) fn note_passed_turns(&mut self) {
        let waits = |it: &Container| {
            let has_hook = it.hook.is_some_and(|hook| hook != Hook::Migrate) && it.stop_signals == 0;
            it.held.is_some() && has_hook && !it.gate_failed && self.partner(&it.name).is_none()
        };
        let ends = |it: &Container| self.turn_has_come(it) || self.is_judged_alone(it);
        let waiting = self.containers.iter().filter(|(_, it)| it.role == Some(Role::Sidecar) && waits(it));
        let changed: Vec<_> = waiting
            .filter(|(_, it)| ends(it) != it.ends_since.is_some())
            .map(|(id, it)| (id.clone(), ends(it).then_some(self.now), self.own_time(id)))
            .collect();
        for (id, since, own_time) in changed {
            let Some(container) = self.containers.get_mut(&id) else { continue };
            (container.ends_since, container.own_time) = (since, own_time);
        }
    }

    /// T3, T8: a sidecar whose turn has passed meanwhile goes on, and its next turn has time of its own.
    pub(super) fn hook_ended(&mut self, id: &ContainerId) {
        let container = &self.containers[id];
        let ends = container.gate_failed || container.stop_signals > 0 || self.is_judged_alone(container);
        // T12: the stop that it was part of may have been taken back; V4: or it is replaced.
        let has_no_turn = self.stop.is_none() && !self.may_be_replaced(container);
        let goes_on = has_no_turn || !self.turn_has_come(container);
        if container.role == Some(Role::Sidecar) && !ends && goes_on {
            self.containers.entry(id.clone()).and_modify(|container| container.ends_since = None);
        }
    }
}
