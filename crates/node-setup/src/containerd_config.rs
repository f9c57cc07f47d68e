//! Checks containerd's configuration: whether it has a runtime of podshim, and whether the plan reaches that runtime.
//!
//! Owns which section each version reads (CONTRACT §1.7, trap 27). Reads this one file, no file under its
//! `imports`.

use manifests::finding::{Finding, Severity};
use manifests::source::Source;
use pod_spec::{KruiseMarks, Node as NodeFile, kruise, nearest_word};
use toml_edit::{Document, Item, Table, TableLike, Value};

use crate::glob;
use crate::node::Release;

/// What a node loses with `sandboxer = "shim"` (CONTRACT §5).
pub const LOST_WITH_SHIM: &str = "cAdvisor's figures of pod networks, one SELinux level for a pod, and containerd's default \
                                         sysctls but for sandbox-sysctls in /etc/podshim/config.toml";
/// The plugin that has the runtimes, by the file's version.
const PLUGINS: [(i64, &str); 2] = [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")];
const TYPE: &str = "io.containerd.podshim.v2";
const BINARY: &str = "containerd-shim-podshim-v2";
/// Keys of a plan that the globs must match.
const KEYS: [&str; 2] = ["podshim.io/plan", "podshim.io/on-terminate.a"];
/// The annotations in which the kubelet gives a container's grace period, and whether it is init or ephemeral (F7, F8);
/// for each, the glob to propose.
const KUBELET_KEYS: [(&str, &str); 2] = [
    ("io.kubernetes.pod.terminationGracePeriod", "io.kubernetes.pod.*"),
    ("io.kubernetes.container.type", "io.kubernetes.container.*"),
];
/// For each glob of Kruise's marks a key that it must match.
const KRUISE_KEYS: [(&str, &str); 3] = [
    (kruise::SIDECARSETS, kruise::GLOBS[0]),
    (kruise::LAUNCH, kruise::GLOBS[1]),
    ("version.sidecarset.kruise.io/a", kruise::GLOBS[2]),
];
/// Keys that no pod's author may set, because the CRI or the node owns them; a glob of `pod_annotations` that matches
/// one lets a pod set it. For each an example, then the pattern and what it decides.
const NOT_OF_A_POD: [(&str, &str); 3] = [
    ("io.containerd.runc.v2.group", "io.containerd.*: which shim serves it, and so whose pod it is"),
    ("io.kubernetes.cri.sandbox-id", "io.kubernetes.*: what the CRI and the kubelet say of a container"),
    ("org.systemd.property.ExecStopPost", "org.systemd.property.*: what systemd does with its scope"),
];
/// The keys of a runtime, for all versions.
const RUNTIME_KEYS: [&str; 17] = [
    "runtime_type",
    "runtime_path",
    "runtime_engine",
    "runtime_root",
    "pod_annotations",
    "container_annotations",
    "privileged_without_host_devices",
    "privileged_without_host_devices_all_devices_allowed",
    "base_runtime_spec",
    "cni_conf_dir",
    "cni_max_conf_num",
    "snapshotter",
    "sandboxer",
    "sandbox_mode",
    "io_type",
    "cgroup_writable",
    "options",
];

struct Config<'a> {
    source: &'a Source,
    node: &'a NodeFile,
    too_old: Option<Release>,
    version: i64,
    findings: Vec<Finding>,
}

/// All findings on the file, of a node with that file of its own. `too_old` is its containerd, if that is one before the first
/// with the Sandbox API.
pub fn check(source: &Source, node: &NodeFile, too_old: Option<Release>) -> Vec<Finding> {
    let mut config = Config { source, node, too_old, version: 1, findings: Vec::new() };
    match Document::parse(source.text.as_str()) {
        Ok(document) => config.check(document.as_table()),
        Err(error) => {
            let line = config.line_at(error.span().map_or(0, |span| span.start));
            let message = format!("not valid TOML: {}", error.message().lines().next().unwrap_or_default());
            config.note(Severity::Error, line, message);
        }
    }
    config.findings
}

impl Config<'_> {
    fn line_at(&self, offset: usize) -> usize {
        let before = self.source.text.get(..offset).unwrap_or_default();
        1 + before.matches('\n').count()
    }

    /// The line of a key, or of the table around it.
    fn line_of(&self, table: &dyn TableLike, key: &str) -> usize {
        let entry = table.get_key_value(key);
        let span = entry.and_then(|(key, item)| key.span().or_else(|| item.span()));
        self.line_at(span.map_or(0, |span| span.start))
    }

    fn note(&mut self, severity: Severity, line: usize, message: impl Into<String>) -> &mut Finding {
        self.findings.push(Finding::new(severity, &self.source.name, line, message));
        let last = self.findings.len() - 1;
        &mut self.findings[last]
    }

    fn check(&mut self, root: &Table) {
        self.version = root.get("version").and_then(Item::as_integer).unwrap_or(1);
        let Some((_, plugin)) = PLUGINS.iter().find(|(version, _)| *version == self.version) else {
            let line = if root.contains_key("version") { self.line_of(root, "version") } else { 1 };
            let message =
                format!("version {}: podshim is known to work with 2 (containerd 1.6, 1.7) and 3 (2.x)", {
                    self.version
                });
            self.note(Severity::Error, line, message).fix = Some("containerd config migrate".to_owned());
            return;
        };
        let plugins = root.get("plugins").and_then(Item::as_table_like);
        let mut found = 0;
        for (version, name) in PLUGINS {
            let runtimes = plugins.and_then(|plugins| runtimes(plugins, name));
            for (handler, item) in runtimes.into_iter().flat_map(TableLike::iter) {
                let (Some(runtimes), Some(runtime)) = (runtimes, item.as_table_like()) else { continue };
                if !is_podshim(runtime) {
                    continue;
                }
                found += 1;
                let line = self.line_of(runtimes, handler);
                if version != self.version {
                    let message = format!(
                        "runtime {handler:?} stands below {name:?}, which a file of version {} does not have",
                        self.version
                    );
                    let fix = format!("[plugins.'{plugin}'.containerd.runtimes.{handler}]");
                    self.note(Severity::Error, line, message).fix = Some(fix);
                }
                // Also check a runtime in the wrong place, so that the author sees all findings before moving it.
                self.check_runtime(handler, line, runtime);
            }
        }
        if found == 0 {
            let also = if root.contains_key("imports") {
                "; a file under imports may have one (containerd config dump shows what counts)"
            } else {
                ""
            };
            let message = format!("no runtime of podshim{also}");
            let lines = format!("/usr/local/share/podshim/containerd-version-{}.toml", self.version);
            let fix = format!("podshim install adds one; or append the lines of {lines}");
            self.note(Severity::Error, 1, message).fix = Some(fix);
        }
    }

    fn check_runtime(&mut self, handler: &str, line: usize, runtime: &dyn TableLike) {
        for (key, item) in runtime.iter() {
            if !RUNTIME_KEYS.contains(&key) {
                let at = self.line_of(runtime, key);
                // A key that is there already must not be proposed: it would be there twice.
                let free = RUNTIME_KEYS.iter().copied().filter(|key| runtime.get(key).is_none());
                let nearest = nearest_word(key, free).map(str::to_owned);
                let message = "no key of a runtime: containerd passes over it in silence";
                let value = item.as_value().and_then(Value::span).and_then(|span| self.source.text.get(span));
                let value = value.map(str::to_owned);
                let finding = self.note(Severity::Error, at, message);
                finding.key = Some(key.to_owned());
                finding.value = value;
                finding.fix =
                    Some(nearest.as_ref().map_or("remove it".to_owned(), |word| format!("write {word}")));
                finding.nearest = nearest;
            }
        }
        let sandboxer = if self.version == 3 { text(runtime, "sandboxer") } else { None };
        if sandboxer == Some("shim") {
            self.check_release(runtime);
            self.check_sandboxer(line, runtime);
        } else {
            self.check_type(line, runtime);
        }
        self.check_globs(handler, line, runtime);
        let older = "podshim serves the Sandbox API for containerd 2.3 and later, whose file has version 3";
        if self.version == 2 {
            self.refuse(runtime, "sandboxer", "shim", older, "remove it");
        }
        self.refuse(runtime, "sandbox_mode", "shim", older, "remove it");
        self.refuse(runtime, "io_type", "streaming", "podshim refuses streams of that kind", "remove it");
    }

    /// Checks the runtime's type and what each version makes of it (CONTRACT §1.7).
    fn check_type(&mut self, line: usize, runtime: &dyn TableLike) {
        let own_type = text(runtime, "runtime_type") == Some(TYPE);
        if self.version == 3 && own_type {
            let at = self.line_of(runtime, "runtime_type");
            let message =
                "the kubelet refuses user namespaces and recursive read-only mounts on types of this name";
            let fix = format!(
                "runtime_type = \"io.containerd.runc.v2\" and runtime_path = \"/usr/local/bin/{BINARY}\""
            );
            let finding = self.note(Severity::Warning, at, message);
            (finding.key, finding.value) = (Some("runtime_type".to_owned()), Some(TYPE.to_owned()));
            finding.fix = Some(fix);
        }
        if self.version == 3 && own_type && runtime.contains_key("options") {
            let at = self.line_of(runtime, "options");
            let message = "with a table of options, pods with user namespaces fail on a runtime of this type";
            let finding = self.note(Severity::Warning, at, message);
            finding.key = Some("options".to_owned());
            finding.fix = Some("remove the table: podshim needs none".to_owned());
        }
        if self.version == 2 && !own_type {
            let message =
                "containerd 1.6 makes sandboxes without a look at runtime_path: they get another shim";
            self.refuse_type(line, runtime, message);
        }
    }

    /// Refuses another runtime_type where containerd looks at nothing else.
    fn refuse_type(&mut self, line: usize, runtime: &dyn TableLike, message: &str) {
        let finding = self.note(Severity::Error, line, message);
        finding.key = Some("runtime_type".to_owned());
        finding.value = text(runtime, "runtime_type").map(str::to_owned);
        finding.nearest = Some(TYPE.to_owned());
        finding.fix = Some(format!("runtime_type = \"{TYPE}\", without runtime_path"));
    }

    /// Refuses `sandboxer = "shim"` for a containerd that panics with it (containerd#12983).
    fn check_release(&mut self, runtime: &dyn TableLike) {
        if let Some(Release { major, minor }) = self.too_old {
            let message = format!(
                "needs containerd 2.3 or later, and this is {major}.{minor}: a pod of the node's network ends the daemon"
            );
            self.refuse(
                runtime,
                "sandboxer",
                "shim",
                &message,
                "remove it: podshim install without --sandboxer",
            );
        }
    }

    /// Checks what `sandboxer = "shim"` needs, and says what is lost with it (CONTRACT §5).
    fn check_sandboxer(&mut self, line: usize, runtime: &dyn TableLike) {
        let at = self.line_of(runtime, "sandboxer");
        let note = format!(
            "for containerd 2.3 and later: before, a pod of the node's network ends the daemon. Lost with it: {LOST_WITH_SHIM}"
        );
        let finding = self.note(Severity::Note, at, note);
        (finding.key, finding.value) = (Some("sandboxer".to_owned()), Some("shim".to_owned()));
        if text(runtime, "runtime_type") != Some(TYPE) {
            let message =
                "with sandboxer = \"shim\" containerd does not look at runtime_path: pods get another shim";
            self.refuse_type(line, runtime, message);
        }
    }

    fn check_globs(&mut self, handler: &str, line: usize, runtime: &dyn TableLike) {
        let (pod, pod_line) = self.globs(runtime, "pod_annotations", line);
        // The Sandbox API passes all of them.
        let needs_globs = self.version != 3 || text(runtime, "sandboxer") != Some("shim");
        if needs_globs && !KEYS.iter().all(|key| pod.iter().any(|glob| glob::matches(glob, key))) {
            let message = format!("runtime {handler:?} never sees a plan: pods run as without podshim");
            let nearest = (!pod.is_empty()).then(|| "podshim.io/*".to_owned());
            let finding = self.note(Severity::Error, pod_line, message);
            finding.key = Some("pod_annotations".to_owned());
            finding.value = (!pod.is_empty()).then(|| pod.join(", "));
            finding.fix =
                Some("pod_annotations = [\"podshim.io/*\"] (a * does not cross a slash)".to_owned());
            finding.nearest = nearest;
        }
        self.check_globs_of_kruise(handler, &pod, pod_line);
        for (key, what) in NOT_OF_A_POD {
            for glob in pod.iter().filter(|glob| glob::matches(glob, key)) {
                let message = format!("lets a pod's author say {what}");
                let rest: Vec<_> = pod.iter().filter(|other| *other != glob).collect();
                let rest_is_enough = KEYS.iter().all(|key| rest.iter().any(|glob| glob::matches(glob, key)));
                let finding = self.note(Severity::Warning, pod_line, message);
                finding.key = Some("pod_annotations".to_owned());
                finding.value = Some(glob.clone());
                finding.fix = Some(match rest_is_enough {
                    true => format!("remove \"{glob}\", or name what your pods need of it"),
                    false => format!("replace \"{glob}\" by what your pods need, such as \"podshim.io/*\""),
                });
            }
        }
        let (container, container_line) = self.globs(runtime, "container_annotations", line);
        for (key, wanted) in KUBELET_KEYS {
            if !container.iter().any(|glob| glob::matches(glob, key)) {
                let message = format!("runtime {handler:?} never sees the kubelet's {key}");
                let finding = self.note(Severity::Warning, container_line, message);
                finding.key = Some("container_annotations".to_owned());
                finding.fix = Some(format!("add \"{wanted}\""));
            }
        }
    }

    /// S12: a node that reads Kruise's marks, and a runtime that they do not reach.
    fn check_globs_of_kruise(&mut self, handler: &str, globs: &[String], line: usize) {
        if self.node.kruise_marks() == KruiseMarks::Ignored {
            return;
        }
        let is_missing = |(example, _): &(&str, &str)| !globs.iter().any(|glob| glob::matches(glob, example));
        let missing: Vec<_> =
            KRUISE_KEYS.into_iter().filter(is_missing).map(|(_, glob)| format!("\"{glob}\"")).collect();
        if missing.is_empty() {
            return;
        }
        let message = format!(
            "the node's file reads OpenKruise's marks, and runtime {handler:?} does not see them all: its pods have no plan of them"
        );
        let finding = self.note(Severity::Error, line, message);
        finding.key = Some("pod_annotations".to_owned());
        finding.fix = Some(format!("add {} (podshim install writes them)", missing.join(", ")));
    }

    fn globs(&self, runtime: &dyn TableLike, key: &str, line: usize) -> (Vec<String>, usize) {
        let Some(item) = runtime.get(key) else { return (Vec::new(), line) };
        let items = item.as_array().into_iter().flatten();
        (items.filter_map(Value::as_str).map(str::to_owned).collect(), self.line_of(runtime, key))
    }

    fn refuse(&mut self, runtime: &dyn TableLike, key: &str, value: &str, message: &str, fix: &str) {
        if text(runtime, key) == Some(value) {
            let at = self.line_of(runtime, key);
            let finding = self.note(Severity::Error, at, message);
            (finding.key, finding.value) = (Some(key.to_owned()), Some(value.to_owned()));
            finding.fix = Some(fix.to_owned());
        }
    }
}

fn runtimes<'a>(plugins: &'a dyn TableLike, plugin: &str) -> Option<&'a dyn TableLike> {
    plugins.get(plugin)?.get("containerd")?.get("runtimes")?.as_table_like()
}

/// Whether a runtime is podshim, by its type or by the path of its binary.
pub(crate) fn is_podshim(runtime: &dyn TableLike) -> bool {
    text(runtime, "runtime_type") == Some(TYPE)
        || text(runtime, "runtime_path").is_some_and(|path| path.rsplit('/').next() == Some(BINARY))
}

fn text<'a>(table: &'a dyn TableLike, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Item::as_str)
}
