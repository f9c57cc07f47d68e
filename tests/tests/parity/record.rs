//! The record of a run on one shim, for the comparison: a list of steps, each with named fields as text. Values that
//! always differ (pids, times, directories) are replaced by names of what they stand for; nothing else may be left out.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use containerd_shim_protos::cgroups::metrics::Metrics as MetricsV1;
use containerd_shim_protos::cgroups_v2::metrics::Metrics as MetricsV2;
use containerd_shim_protos::events::task;
use containerd_shim_protos::shim::oci::ProcessDetails;
use protobuf::reflect::{ReflectFieldRef, ReflectValueRef};
use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::timestamp::Timestamp;
use protobuf::{MessageDyn, MessageFull};

/// The seconds that Go sends for a time that was never set.
const ZERO_TIME: i64 = -62_135_596_800;

/// One step and its result.
#[derive(Clone, Debug)]
pub struct Record {
    pub step: String,
    pub fields: Vec<(String, String)>,
}

/// The names that replace values of one run.
#[derive(Debug, Default)]
pub struct Names {
    pids: BTreeMap<u32, String>,
    texts: Vec<(String, &'static str)>,
}

impl Names {
    /// Names a process from now on.
    pub fn pid(&mut self, pid: u32, name: impl Into<String>) {
        self.pids.insert(pid, name.into());
    }

    pub fn pid_of(&self, name: &str) -> Option<u32> {
        self.pids.iter().find(|(_, of)| *of == name).map(|(pid, _)| *pid)
    }

    /// Replaces a text wherever it occurs. The first that matches wins: add the longer one first.
    pub fn text(&mut self, text: impl Into<String>, name: &'static str) {
        self.texts.push((text.into(), name));
    }

    pub fn of_pid(&self, pid: u32) -> String {
        match (pid, self.pids.get(&pid)) {
            (0, _) => "0".to_owned(),
            (_, Some(name)) => format!("<{name}>"),
            (_, None) => "<another>".to_owned(),
        }
    }

    pub fn of_text(&self, text: &str) -> String {
        self.texts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// All fields of a message that are set, by path. Unset fields need no comparison: in proto3 zero and unset are the
    /// same.
    pub fn fields(&self, message: &dyn MessageDyn) -> Vec<(String, String)> {
        let mut found = Vec::new();
        self.flatten("", message, &mut found);
        found
    }

    fn flatten(&self, path: &str, message: &dyn MessageDyn, found: &mut Vec<(String, String)>) {
        for field in message.descriptor_dyn().fields() {
            let name =
                if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
            match field.get_reflect(message) {
                ReflectFieldRef::Optional(value) => {
                    if let Some(value) = value.value() {
                        self.value(&name, &value, found);
                    }
                }
                ReflectFieldRef::Repeated(values) => {
                    if !values.is_empty() {
                        found.push((format!("{name}.number"), values.len().to_string()));
                    }
                    for index in 0..values.len() {
                        self.value(&format!("{name}[{index}]"), &values.get(index), found);
                    }
                }
                ReflectFieldRef::Map(values) => {
                    for (key, value) in &values {
                        self.value(&format!("{name}[{key}]"), &value, found);
                    }
                }
            }
        }
    }

    fn value(&self, name: &str, value: &ReflectValueRef<'_>, found: &mut Vec<(String, String)>) {
        let text = match value {
            ReflectValueRef::Message(message) => return self.message(name, &**message, found),
            ReflectValueRef::U64(number) if is_fickle(name) => match is_much(name, *number) {
                true => "much".to_owned(),
                false => return,
            },
            ReflectValueRef::U32(0) | ReflectValueRef::U64(0) => return,
            ReflectValueRef::U64(_) if name.starts_with("stats.") && !is_steady(name) => {
                "a number".to_owned()
            }
            ReflectValueRef::U32(pid) if name.ends_with("pid") => self.of_pid(*pid),
            ReflectValueRef::Bool(false) => return,
            ReflectValueRef::String("") => return,
            ReflectValueRef::String(text) => self.of_text(text),
            ReflectValueRef::Bytes(bytes) => self.of_text(&String::from_utf8_lossy(bytes)),
            ReflectValueRef::Enum(descriptor, number) => descriptor
                .value_by_number(*number)
                .map_or_else(|| number.to_string(), |value| value.name().to_owned()),
            other => other.to_string(),
        };
        found.push((name.to_owned(), text));
    }

    fn message(&self, name: &str, message: &dyn MessageDyn, found: &mut Vec<(String, String)>) {
        if let Some(time) = message.downcast_ref::<Timestamp>() {
            found.push((name.to_owned(), time_text(time)));
        } else if let Some(any) = message.downcast_ref::<Any>() {
            found.push((format!("{name}.type_url"), any.type_url.clone()));
            match decoded(any) {
                Some(Ok(message)) => self.flatten(name, &*message, found),
                Some(Err(error)) => found.push((name.to_owned(), format!("undecodable: {error}"))),
                None => found.push((name.to_owned(), format!("{:?}", any.value))),
            }
        } else {
            // An empty message differs from a missing one.
            found.push((name.to_owned(), "there".to_owned()));
            self.flatten(name, message, found);
        }
    }
}

/// Whether a cgroup's number is the same at any moment: limits, and device numbers.
fn is_steady(name: &str) -> bool {
    ["limit", "major", "minor", "hierarchical_memory_limit", "hierarchical_swap_limit"]
        .iter()
        .any(|steady| name.ends_with(&format!(".{steady}")))
}

/// Whether a cgroup's number may be zero at one moment and not at the next. The kernel counts pages per CPU and adds
/// them up later, and counts each kind of CPU time in ticks. Whether a period's CPU limit was used up depends on the
/// machine's other load.
fn is_fickle(name: &str) -> bool {
    let is_page_count = |counter: &str| !counter.contains('.') && !is_steady(name);
    name.contains(".per_cpu[")
        || name.starts_with("stats.cpu.throttling.")
        || FICKLE_CPU_NUMBERS.contains(&name)
        || name.strip_prefix("stats.memory.").is_some_and(is_page_count)
}

/// The numbers of v1, then of v2, where throttling is counted beside the rest.
const FICKLE_CPU_NUMBERS: [&str; 7] = [
    "stats.cpu.usage.user",
    "stats.cpu.usage.kernel",
    "stats.cpu.user_usec",
    "stats.cpu.system_usec",
    "stats.cpu.nr_periods",
    "stats.cpu.nr_throttled",
    "stats.cpu.throttled_usec",
];

/// Whether a fickle number is too large to be zero a moment later. Only for a container's own memory, because pages of
/// files are counted in the cgroup that read them first.
fn is_much(name: &str, number: u64) -> bool {
    let counters = ["stats.memory.rss", "stats.memory.total_rss", "stats.memory.anon"];
    counters.contains(&name) && number >= 8 << 20
}

/// A time within this run becomes "now"; any other time is shown as it is.
fn time_text(time: &Timestamp) -> String {
    if time.seconds == ZERO_TIME {
        return "zero".to_owned();
    }
    let now = now();
    let time = Duration::new(time.seconds.unsigned_abs(), time.nanos.unsigned_abs());
    if time <= now && now - time < Duration::from_secs(600) { "now".to_owned() } else { format!("{time:?}") }
}

#[expect(clippy::disallowed_methods, reason = "answers carry the wall clock's time")]
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn boxed<M: MessageFull>(bytes: &[u8]) -> protobuf::Result<Box<dyn MessageDyn>> {
    Ok(Box::new(M::parse_from_bytes(bytes)?))
}

/// The message in an Any, of the types that shims send.
fn decoded(any: &Any) -> Option<protobuf::Result<Box<dyn MessageDyn>>> {
    let parse = match any.type_url.as_str() {
        "io.containerd.cgroups.v1.Metrics" => boxed::<MetricsV1>,
        "io.containerd.cgroups.v2.Metrics" => boxed::<MetricsV2>,
        "containerd.runc.v1.ProcessDetails" => boxed::<ProcessDetails>,
        "containerd.events.TaskCreate" => boxed::<task::TaskCreate>,
        "containerd.events.TaskStart" => boxed::<task::TaskStart>,
        "containerd.events.TaskExecAdded" => boxed::<task::TaskExecAdded>,
        "containerd.events.TaskExecStarted" => boxed::<task::TaskExecStarted>,
        "containerd.events.TaskExit" => boxed::<task::TaskExit>,
        "containerd.events.TaskDelete" => boxed::<task::TaskDelete>,
        "containerd.events.TaskOOM" => boxed::<task::TaskOOM>,
        "containerd.events.TaskPaused" => boxed::<task::TaskPaused>,
        "containerd.events.TaskResumed" => boxed::<task::TaskResumed>,
        "containerd.events.TaskCheckpointed" => boxed::<task::TaskCheckpointed>,
        _ => return None,
    };
    Some(parse(&any.value))
}
