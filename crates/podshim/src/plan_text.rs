//! Writes an explanation as text for people. Owns the wording.

use std::time::Duration;

use manifests::explanation::{
    BudgetSource, Completion, ConditionWord, Cost, EVERY_OTHER, Explanation, FatalWord, OthersWord, Part,
    PlannedWord, RestartWord, RoleWord, SourceWord,
};
use manifests::resources::{Amounts, Qos, written};
use pod_spec::DurationText;

use crate::output::{ColorMode, Colour};

/// The lines of an explanation, indented.
pub fn show(explanation: &Explanation, paint: ColorMode) -> String {
    let names = explanation.containers.iter().map(|part| part.name.chars().count());
    let width = names.max().unwrap_or(0);
    let mut text = match explanation.source {
        SourceWord::Annotations => String::new(),
        SourceWord::Kruise => "From OpenKruise's marks, on a node that reads them.\n".to_owned(),
    };
    text += &format!("{}\n", paint.text(Colour::Bold, "Start"));
    let mut by_start: Vec<&Part> = explanation.containers.iter().collect();
    by_start.sort_by_key(|part| (part.start_step, part.standby_of.is_some()));
    for part in by_start {
        let mut head = head(part.start_step, part, width);
        for line in start_lines(part) {
            text += &format!("{head}  {line}\n");
            head = " ".repeat(head.chars().count());
        }
    }
    text += &others(explanation);
    text += &format!("  {}\n", held(explanation));
    text += &show_stop(explanation, width, paint);
    text + &explanation.resources.as_ref().map(|cost| show_cost(cost, paint)).unwrap_or_default()
}

/// What the pod asks of its node, and what of that is the price of plain containers.
fn show_cost(cost: &Cost, paint: ColorMode) -> String {
    let class = match cost.qos {
        Qos::Guaranteed => "Guaranteed",
        Qos::Burstable => "Burstable",
        Qos::BestEffort => "BestEffort",
    };
    let (here, native) = (&cost.as_written, &cost.native);
    let heading = paint.text(Colour::Bold, "Resources");
    if here.requests.is_empty() && here.limits.is_empty() {
        return format!("{heading}: no container asks for any (QoS class {class})\n");
    }
    let mut text = format!("{heading} that the scheduler counts (QoS class {class})\n");
    for (word, here, native) in
        [("requests", &here.requests, &native.requests), ("limits", &here.limits, &native.limits)]
    {
        text += &format!("  {word:8}  {}\n", amounts(here));
        if here != native {
            text += &format!("            {} with native inits and sidecars\n", amounts(native));
        }
    }
    text
}

fn amounts(amounts: &Amounts) -> String {
    let shown: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{name} {}", written(name, *amount))).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

fn show_stop(explanation: &Explanation, width: usize, paint: ColorMode) -> String {
    let stop = &explanation.stop;
    let budget = show_ms(stop.budget_ms);
    let whose = match stop.budget_from {
        BudgetSource::Annotation => "podshim.io/grace, which podshim enforces",
        BudgetSource::Manifest => "terminationGracePeriodSeconds; the kubelet's SIGKILL ends it",
        BudgetSource::KubeletFirst => {
            "terminationGracePeriodSeconds, which is shorter than podshim.io/grace; the kubelet's SIGKILL ends it"
        }
        BudgetSource::Default => "a kubelet's default; its SIGKILL ends it",
    };
    let heading = paint.text(Colour::Bold, "Stop");
    let mut text = format!("{heading}, all within one budget of {budget} ({whose})\n");
    let mut by_stop: Vec<&Part> = explanation.containers.iter().collect();
    by_stop.retain(|part| part.role != RoleWord::Init && part.standby_of.is_none());
    by_stop.sort_by_key(|part| part.stop_step);
    for part in by_stop {
        text += &format!("{}  {}\n", head(part.stop_step, part, width), stop_line(part));
    }
    if let Some(kept) = stop.kept_for_each_step_ms {
        let kept = show_ms(kept);
        text += &format!("  {kept} of it are kept for each step after the mains (podshim.io/reserve).\n");
    }
    let floor = show_ms(stop.gone_within_ms - stop.budget_ms);
    text += &format!("  Whatever is left after {budget} is gone {floor} later.\n");
    text + match explanation.completion {
        Completion::Never => "  The pod never ends by itself (restart-policy Always).\n",
        Completion::MainsSucceeded => {
            "  When all mains have exited with 0, the sidecars are stopped in this order.\n"
        }
        Completion::MainsExited => "  When all mains have exited, the sidecars are stopped in this order.\n",
    }
}

fn head(step: usize, part: &Part, width: usize) -> String {
    let role = match part.role {
        RoleWord::Init => "init",
        RoleWord::Sidecar => "sidecar",
        RoleWord::Main => "main",
    };
    format!("  {step:>2}  {:width$}  {role:7}", part.name)
}

fn start_lines(part: &Part) -> Vec<String> {
    let mut lines = vec![match &part.standby_of {
        Some(first) => format!("held as the standby of {first}, until it takes over"),
        None if part.waits_for.is_empty() => "at once".to_owned(),
        None => {
            let is = |names: &[String], one: &str, many: &str| {
                let verb = if names.len() == 1 { one } else { many };
                format!("{} {verb}", and(names.to_vec()))
            };
            let waits = [ConditionWord::Done, ConditionWord::Ready, ConditionWord::Started].map(|until| {
                let same = part.waits_for.iter().filter(|wait| wait.until == until);
                let names: Vec<String> = same.map(|wait| wait.container.clone()).collect();
                (!names.is_empty()).then(|| match until {
                    ConditionWord::Done => is(&names, "has exited with 0", "have exited with 0"),
                    ConditionWord::Ready => is(&names, "is ready", "are ready"),
                    ConditionWord::Started => is(&names, "runs", "run"),
                })
            });
            format!("when {}", and(waits.into_iter().flatten().collect()))
        }
    }];
    if let Some(gate) = &part.gate {
        lines.push(match (gate.as_str(), part.gate_within_ms) {
            ("running", _) => "ready when its program runs".to_owned(),
            ("none", _) => "what follows does not wait for it".to_owned(),
            (gate, Some(bound)) => {
                format!("ready by {gate}; if not, restarted after {} at the latest", show_ms(bound))
            }
            (gate, None) => format!("ready by {gate}"),
        });
    }
    let codes = part.restart_codes.as_ref();
    let restarts = match (part.role, part.restart) {
        (RoleWord::Init, RestartWord::Never) => Some("its failure fails the pod"),
        (_, RestartWord::OnFailure) if codes.is_some() => None,
        (RoleWord::Main, RestartWord::Always) => Some("restarted by podshim after every exit"),
        (RoleWord::Main, RestartWord::OnFailure) => Some("restarted by podshim after a failure"),
        (RoleWord::Sidecar, RestartWord::OnFailure) => Some("restarted after a failure only"),
        (RoleWord::Sidecar | RoleWord::Init, RestartWord::Caller) => {
            Some("restarted by its caller, who sees each exit")
        }
        (RoleWord::Sidecar | RoleWord::Main, RestartWord::Never) => Some("never restarted"),
        _ => None,
    };
    let other = match part.planned {
        PlannedWord::Named => None,
        PlannedWord::Other if part.name == EVERY_OTHER => Some("every container that the plan does not name"),
        PlannedWord::Other => Some("a main: the plan does not name it"),
    };
    let fatal = part.fatal.map(|fatal| match fatal {
        FatalWord::Failure => "its failure stops the whole pod".to_owned(),
        FatalWord::Exit => "its exit stops the whole pod".to_owned(),
        FatalWord::Restart => pod_restart_line(part.pod_restarts.unwrap_or_default()),
    });
    lines.extend(other.into_iter().chain(restarts).map(str::to_owned));
    lines.extend(codes.map(|codes| restart_line(part.role, codes)));
    lines.extend(fatal);
    lines
}

/// R14.
fn pod_restart_line(limit: u32) -> String {
    let times = if limit == 1 { "once".to_owned() } else { format!("{limit} times") };
    format!("its failure restarts the whole pod in place, in order, {times}; the next one stops it")
}

/// R13.
fn restart_line(role: RoleWord, codes: &str) -> String {
    let other = match role {
        RoleWord::Init => "another failure fails the pod",
        RoleWord::Sidecar | RoleWord::Main => "any other exit is shown",
    };
    format!("restarted by podshim after the exit codes {codes}; {other}")
}

fn stop_line(part: &Part) -> String {
    let mut text = match (part.stops_after.len(), part.role) {
        (0, RoleWord::Main) => "at once".to_owned(),
        (0, _) => "at once, as nothing needs it".to_owned(),
        (1, _) => format!("when {} is gone", in_words(&part.stops_after[0])),
        _ => format!("when {} are gone", and(part.stops_after.iter().map(|name| in_words(name)).collect())),
    };
    if part.signal_within_ms > 0 {
        text += &format!(", after {} at the latest", show_ms(part.signal_within_ms));
    }
    text += &format!("; gone within {}", show_ms(part.gone_within_ms));
    if part.kubelet_hook {
        text += "; its kubelet's preStop hook runs first";
    }
    if let Some(command) = &part.on_terminate {
        text += &format!("; runs {:?} when the stop begins", command.join(" "));
    }
    if let Some(command) = &part.pre_stop {
        text += &format!("; runs {:?} before its signal", command.join(" "));
    }
    text
}

/// The line on containers that the plan does not name.
fn others(explanation: &Explanation) -> String {
    let planned = |name: &&String| explanation.containers.iter().all(|part| part.name != **name);
    let names: Vec<&str> = explanation.unnamed.iter().filter(planned).map(String::as_str).collect();
    match (names.is_empty(), explanation.others) {
        (true, _) => String::new(),
        (false, OthersWord::Mains) => {
            format!(
                "  Started by the kubelet before all of this, and not in the plan: {}.\n",
                names.join(", ")
            )
        }
        (false, OthersWord::Passthrough) => {
            format!("  Not in the plan, so never held and never counted: {}.\n", names.join(", "))
        }
    }
}

/// A container as it is called in a sentence.
fn in_words(name: &str) -> String {
    if name == EVERY_OTHER { "every other container".to_owned() } else { name.to_owned() }
}

fn held(explanation: &Explanation) -> String {
    if explanation.containers.iter().all(|part| part.waits_for.is_empty()) {
        return "Nothing waits for anything.".to_owned();
    }
    match explanation.held_at_most_ms {
        Some(limit) => format!("Nothing is held longer than {}: it then exits with 125.", show_ms(limit)),
        None => "A hold has no limit (podshim.io/gate-timeout sets one).".to_owned(),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn and(mut words: Vec<String>) -> String {
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} and {last}", words.join(", ")),
        Some(last) => last,
        None => String::new(),
    }
}

fn show_ms(milliseconds: u64) -> String {
    DurationText(Duration::from_millis(milliseconds)).to_string()
}
