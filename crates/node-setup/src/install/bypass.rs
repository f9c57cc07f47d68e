//! Points podshim's runtimes in the text of containerd's configuration at containerd's own shim, and back, byte for byte.
//!
//! Owns the marks of the lines that it puts in and takes out of effect. A template is no TOML, so it works on lines: the header of a
//! runtime's table, and the keys up to the next header. Reads and writes no file.

/// At the end of a line that a bypass has put in.
const ADDED: &str = " # podshim bypass";
/// At the beginning of a line that a bypass has taken out of effect.
const SILENCED: &str = "# podshim bypass: ";
/// What decides which shim serves a runtime's pods, and how containerd asks it.
const KEYS: [&str; 4] = ["runtime_type", "runtime_path", "sandboxer", "sandbox_mode"];

/// Whether a bypass is in this text.
pub fn is_bypassed(text: &str) -> bool {
    text.lines().any(|line| line.ends_with(ADDED))
}

/// The text with each of podshim's runtimes on containerd's own shim; `None` if it has none. `options` are those of the node's
/// runc: without its cgroup driver that shim would put the pods of a kubelet elsewhere.
pub fn bypassed(text: &str, options: &[String]) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut new = String::with_capacity(text.len() + 256);
    let (mut found, mut at) = (false, 0);
    while at < lines.len() {
        let end = at + 1 + lines[at + 1..].iter().take_while(|line| !is_end(line)).count();
        let block = &lines[at..end];
        match runtime_of(block[0]).filter(|_| block[1..].iter().any(|line| names_podshim(line))) {
            None => new.extend(block.iter().copied()),
            Some(name) => {
                found = true;
                let has_options = lines.iter().any(|line| is_options_of(line, name));
                new.push_str(&silenced(block, if has_options { &[] } else { options }));
            }
        }
        at = end;
    }
    found.then_some(new)
}

/// The text without a bypass; `None` if it has none.
pub fn restored(text: &str) -> Option<String> {
    let lines = text.split_inclusive('\n').filter(|line| !line.trim_end_matches('\n').ends_with(ADDED));
    is_bypassed(text).then(|| lines.map(|line| line.strip_prefix(SILENCED).unwrap_or(line)).collect())
}

/// The options of the runtime `runc`, each as a line of its own has it.
pub fn options_of_runc(text: &str) -> Vec<String> {
    let mut lines =
        text.lines().skip_while(|line| !is_options_of(line, "runc")).skip(1).take_while(|line| !is_end(line));
    let mut options = Vec::new();
    for line in &mut lines {
        let line = line.trim();
        if line.contains('=') && !line.starts_with('#') {
            options.push(line.split(" #").next().unwrap_or(line).trim().to_owned());
        }
    }
    options
}

/// A runtime's table on containerd's own shim. What is put in stands right below its header, which ends in a line feed.
fn silenced(block: &[&str], options: &[String]) -> String {
    let mut text = format!("{}  runtime_type = \"io.containerd.runc.v2\"{ADDED}\n", block[0]);
    if !options.is_empty() {
        text += &format!("  options = {{ {} }}{ADDED}\n", options.join(", "));
    }
    for line in &block[1..] {
        let key = line.split('=').next().unwrap_or_default().trim();
        text += if KEYS.contains(&key) { SILENCED } else { "" };
        text += line;
    }
    text
}

/// Whether a runtime's table has ended before this line.
fn is_end(line: &str) -> bool {
    line.trim_start().starts_with('[') || line.starts_with("# podshim: end")
}

fn names_podshim(line: &str) -> bool {
    let Some((key, value)) = line.split(" #").next().and_then(|line| line.split_once('=')) else {
        return false;
    };
    match key.trim() {
        "runtime_type" | "runtime_path" => value.contains("podshim"),
        _ => false,
    }
}

/// The name of the runtime whose table begins in this line.
fn runtime_of(line: &str) -> Option<&str> {
    let (_, name) = header(line)?.rsplit_once(".runtimes.")?;
    let name = name.trim_matches(['"', '\'']);
    (!name.contains('.')).then_some(name)
}

fn is_options_of(line: &str, runtime: &str) -> bool {
    let name = header(line).and_then(|header| header.rsplit_once(".runtimes.")?.1.strip_suffix(".options"));
    name.is_some_and(|name| name.trim_matches(['"', '\'']) == runtime)
}

fn header(line: &str) -> Option<&str> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    line.strip_prefix('[')?.strip_suffix(']').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNC: &str = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n  \
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n    SystemdCgroup = true\n\
         \x20   # BinaryName = \"crun\"\n";

    /// With and without a last line feed, a table of options, other tables behind it, a second name of podshim.
    #[test]
    fn found_n14_a_bypass_is_undone_byte_for_byte() {
        let own = "[plugins.x.containerd.runtimes.podshim]\n  runtime_type = \"io.containerd.podshim.v2\"\n  pod_annotations = [\"podshim.io/*\"]";
        let path = "\n\n[plugins.x.containerd.runtimes.'other']  # mine\nruntime_path = '/opt/containerd-shim-podshim-v2'\nsandboxer = \"shim\"\n[metrics]\n  address = \"\"\n";
        let options = "\n  [plugins.x.containerd.runtimes.podshim.options]\n    BinaryName = \"crun\"\n";
        for text in [
            own.to_owned(),
            format!("{own}\n"),
            format!("{own}{path}"),
            format!("{RUNC}{own}{options}{path}"),
        ] {
            let new = bypassed(&text, &options_of_runc(RUNC)).expect("a runtime");
            assert!(is_bypassed(&new) && !is_bypassed(&text), "{new}");
            assert_eq!(restored(&new), Some(text.clone()), "{new}");
            assert_eq!(bypassed(&new, &[]), None, "no runtime of podshim is left: {new}");
            let has_options = text.contains("podshim.options");
            assert_eq!(
                new.matches("options = { SystemdCgroup = true }").count(),
                new.matches(ADDED).count() / 2,
                "{new}"
            );
            assert_eq!(
                new.contains(
                    "podshim]\n  runtime_type = \"io.containerd.runc.v2\" # podshim bypass\n  options"
                ),
                !has_options
            );
        }
        assert_eq!((bypassed(RUNC, &[]), restored(RUNC)), (None, None));
    }
}
