//! `podshim plan`: explains the plan of each pod in the files.

use std::io::stdout;

use clap::Args;
use manifests::annotations::{self, annotation_line};
use manifests::check::CheckContext;
use manifests::check::pod::findings_of_parser;
use manifests::explanation::{Explanation, PodFacts, explain};
use manifests::finding::{Finding, Severity};
use manifests::manifest::{self, List, Template};
use manifests::resources::PodResources;
use manifests::source::Source;
use manifests::yaml::{self, Node};
use pod_spec::{BoundedDuration, Parsed as ParsedPlan};
use serde::Serialize;

use crate::arguments::{ContextArguments, FileArguments, ResultArguments};
use crate::check::check;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, print, print_json};
use crate::plan_text::show;
use crate::{finding_text, source};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Explains the plan of each pod in FILE: what starts when and what it waits for, what stops when, and how long that
takes at the worst. No shim and no cluster is needed.

FILE is Kubernetes YAML (Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, List; objects of any other kind
with pod templates in them, such as CloneSet or JobSet; many documents), or annotations alone: a YAML mapping of them, or
lines of key=value as for `ctr run --annotation`. \"-\" is standard input. It skips objects without a pod, and pods without
annotations of podshim.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 a file cannot be read, a plan is wrong (`podshim check` says more), or no pod has one; 2 wrong arguments.";

/// Arguments of `podshim plan`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// A pod in a file, with its plan explained.
#[derive(Serialize)]
struct Explained {
    file: String,
    line: usize,
    pod: String,
    #[serde(flatten)]
    explanation: Explanation,
}

#[derive(Default, Serialize)]
struct Report {
    pods: Vec<Explained>,
    errors: Vec<Finding>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let context = arguments.context.read()?;
    let mut report = Report::default();
    let mut hints = String::new();
    for file in &arguments.files.files {
        let source = source::read(file)?;
        let before = (report.pods.len(), report.errors.len());
        read(&source, &context, &mut report)?;
        if report.pods.len() > before.0 && report.errors.len() == before.1 {
            hints += &check_hint(&source, &arguments.context, &context);
        }
    }
    if report.pods.is_empty() && report.errors.is_empty() {
        let files = arguments.files.files.join(", ");
        return Err(CommandError::Input(format!("{files}: no pod with annotations of podshim")));
    }
    match arguments.result.format() {
        Format::Json => print_json(&report)?,
        Format::Text => {
            let paint = ColorMode::of(&stdout());
            let pods = report.pods.iter().map(|pod| {
                let title = format!("{}:{}: {}", pod.file, pod.line, pod.pod);
                format!("{}\n{}", paint.text(Colour::Bold, &title), show(&pod.explanation, paint))
            });
            print(&pods.collect::<Vec<_>>().join("\n"))?;
            let paint = ColorMode::of(&std::io::stderr());
            report.errors.iter().for_each(|error| eprint!("{}", finding_text::show(error, paint)));
            eprint!("{hints}");
        }
    }
    Ok(if report.errors.is_empty() { Outcome::Success } else { Outcome::Findings })
}

/// A hint if `podshim check` has findings: a plan that is valid by itself may not fit its pod, so the explanation may
/// not be what its author meant.
fn check_hint(source: &Source, arguments: &ContextArguments, context: &CheckContext) -> String {
    let (_, findings) = check(source, context, None);
    let count = findings.iter().filter(|finding| finding.severity != Severity::Note).count();
    let call = format!("{}{}", arguments.words(), source.name);
    match count {
        0 => String::new(),
        1 => format!("podshim: 1 finding of `podshim check {call}`: look at it first\n"),
        count => format!("podshim: {count} findings of `podshim check {call}`: look at them first\n"),
    }
}

fn read(source: &Source, context: &CheckContext, report: &mut Report) -> Result<(), CommandError> {
    let wrong =
        |line: usize, problem: &str| CommandError::Input(format!("{}:{line}: {problem}", source.name));
    if let Some(pairs) = annotations::lines(&source.text) {
        let parsed = context.node.parse_pod(pairs.iter().map(|(_, key, value)| (*key, *value)));
        let line_of = |key: &str| pairs.iter().find(|(_, own, _)| *own == key).map_or(1, |(line, ..)| *line);
        let value_of = |key: &str| pairs.iter().find(|(_, own, _)| *own == key).map(|(_, _, value)| *value);
        let parsed = parsed.map_err(|invalid| findings_of_parser(&source.name, &invalid, line_of, value_of));
        return take(report, source, 1, "annotations".to_owned(), parsed, &PodFacts::default());
    }
    for document in yaml::documents(&source.text).map_err(|error| wrong(error.line, &error.problem))? {
        let root = &document.root;
        if let Some(annotations) = annotations::alone(root) {
            let title = "annotations".to_owned();
            explain_node(report, source, annotations, title, context, &PodFacts::default())?;
        }
        for template in manifest::all_templates(&document) {
            if let Some(annotations) = template.annotations() {
                let pod = facts(&template, &context.injected);
                explain_node(report, source, annotations, template.title(), context, &pod)?;
            }
        }
    }
    Ok(())
}

fn explain_node(
    report: &mut Report,
    source: &Source,
    annotations: &Node,
    title: String,
    context: &CheckContext,
    facts: &PodFacts,
) -> Result<(), CommandError> {
    let parsed = context.node.parse_pod(manifest::pairs(annotations)).map_err(|invalid| {
        let line_of = |key: &str| annotation_line(annotations, key);
        findings_of_parser(&source.name, &invalid, line_of, |key| annotations.text_of(key))
    });
    take(report, source, annotations.start.line, title, parsed, facts)
}

fn take(
    report: &mut Report,
    source: &Source,
    line: usize,
    pod: String,
    parsed: Result<ParsedPlan, Vec<Finding>>,
    facts: &PodFacts,
) -> Result<(), CommandError> {
    match parsed {
        Ok(parsed) => report.pods.extend(parsed.plan.map(|plan| Explained {
            file: source.name.clone(),
            line,
            pod,
            explanation: explain(&plan, facts),
        })),
        Err(findings) => report.errors.extend(findings),
    }
    Ok(())
}

fn facts(template: &Template<'_>, injected: &[String]) -> PodFacts {
    // One that is in the file already is not added once more.
    let is_new =
        |name: &&String| template.containers().iter().all(|container| container.name != name.as_str());
    PodFacts {
        kubelet_grace: template
            .spec
            .number_of("terminationGracePeriodSeconds")
            .map(|grace| BoundedDuration::of_seconds(grace).get()),
        containers: template
            .containers()
            .iter()
            .map(|container| (container.name.to_owned(), container.list))
            .chain(injected.iter().filter(is_new).map(|name| (name.clone(), List::Regular)))
            .collect(),
        kubelet_hooks: template
            .containers()
            .iter()
            .filter(|container| container.node.at(&["lifecycle", "preStop"]).is_some())
            .map(|container| container.name.to_owned())
            .collect(),
        resources: PodResources::of(template),
    }
}
