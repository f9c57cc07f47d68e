//! `podshim translate`: rewrites manifests with native sidecars for a kubelet that does not know them.

use std::collections::BTreeSet;
use std::io::stderr;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};
use manifests::finding::{Finding, Severity};
use manifests::sidecarset;
use manifests::translate::{Target, Translated, in_place, translate};
use serde::Serialize;

use crate::arguments::ResultArguments;
use crate::finding_text::show;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Format, print, print_json};
use crate::source;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Reads Kubernetes YAML (Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, List; objects of any other kind with
pod templates in them, such as CloneSet or JobSet; many documents) whose pods use native sidecars (KEP-753: initContainers
with restartPolicy: Always), and writes what runs in the same order on a kubelet that does not know them, with podshim as
the runtime:
  * the first sidecar and all initContainers after it move to the front of containers, in their order;
  * annotations: the plan, ready from startup probes, pre-stop from preStop hooks, grace and restart-policy from the pod;
  * runtimeClassName.
It writes everything else as it is. Comments and the order of keys stay, except beside a key that is removed; a document
with anchors or in braces is rewritten. The result goes to standard output and passes `podshim check`. Standard error has
each field that could not be carried over, or is not quite the same. FILE is not changed; \"-\" is standard input.

With --sidecarset it first adds to the pods that an OpenKruise SidecarSet selects what Kruise's webhook would: containers,
initContainers, volumes, variables, secrets, annotations. Its containers are sidecars of the plan; one that is upgraded hot
is a standby pair, NAME-1|NAME-2. A pod without a namespace is taken for one in a namespace of the SidecarSet.

With --in-place it writes the SidecarSets of those files instead, for a cluster that keeps Kruise: patchPodMetadata with the
role of each sidecar, and ready from its probes. Kruise then writes the plan on each pod that it injects.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 a pod could not be translated and was left as it is, or a file cannot be read or is not
such a file; 2 wrong arguments.";

/// Arguments of `podshim translate`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The name of the RuntimeClass for podshim
    #[arg(long, value_name = "NAME", default_value = "podshim", value_parser = NonEmptyStringValueParser::new())]
    runtime_class: String,
    /// A file with one or more SidecarSets; may be given more than once
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    sidecarset: Vec<String>,
    /// Write the SidecarSets themselves, with a patchPodMetadata by which Kruise writes the plan
    #[arg(long, requires = "sidecarset", conflicts_with = "files")]
    in_place: bool,
    #[command(flatten)]
    result: ResultArguments,
    /// "-" is standard input
    #[arg(value_name = "FILE", required_unless_present = "in_place", value_hint = ValueHint::FilePath)]
    files: Vec<String>,
}

#[derive(Default, Serialize)]
struct Report {
    manifests: String,
    pods: usize,
    remarks: Vec<Finding>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read, or a file that is not YAML.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let mut report = Report::default();
    if arguments.in_place {
        for file in &arguments.sidecarset {
            let translated = in_place(&source::read(file)?)
                .map_err(|error| CommandError::Input(format!("{file}:{}: {error}", error.line)))?;
            report.add(translated);
        }
        return report.show(&arguments.result);
    }
    let mut sidecar_sets = Vec::new();
    for file in &arguments.sidecarset {
        let read = sidecarset::read(&source::read(file)?, &mut report.remarks);
        sidecar_sets
            .extend(read.map_err(|error| CommandError::Input(format!("{file}:{}: {error}", error.line)))?);
    }
    let target = Target { runtime_class: &arguments.runtime_class, sidecar_sets: &sidecar_sets };
    let mut selecting = BTreeSet::new();
    for file in &arguments.files {
        let source = source::read(file)?;
        let translated = translate(&source, target).map_err(|error| {
            CommandError::Input(format!("{file}:{}: no YAML: {}", error.line, error.problem))
        })?;
        selecting.extend(translated.selecting.iter().copied());
        report.add(translated);
    }
    for (_, set) in sidecar_sets.iter().enumerate().filter(|(number, _)| !selecting.contains(number)) {
        let what = format!("SidecarSet {:?} selects no pod of these files", set.name);
        report.remarks.push(Finding::new(Severity::Warning, &set.file, set.line, what).key("spec.selector"));
    }
    report.show(&arguments.result)
}

impl Report {
    fn add(&mut self, translated: Translated) {
        if !self.manifests.is_empty() && !translated.text.starts_with("---") {
            self.manifests += "---\n";
        }
        self.manifests += &translated.text;
        self.pods += translated.pods;
        for remark in translated.remarks {
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
    }

    fn show(&self, result: &ResultArguments) -> Result<Outcome, CommandError> {
        let failed = self.remarks.iter().any(|remark| remark.severity == Severity::Error);
        match result.format() {
            Format::Json => print_json(self)?,
            Format::Text => {
                print(&self.manifests)?;
                let paint = ColorMode::of(&stderr());
                self.remarks.iter().for_each(|remark| eprint!("{}", show(remark, paint)));
            }
        }
        Ok(if failed { Outcome::Findings } else { Outcome::Success })
    }
}
