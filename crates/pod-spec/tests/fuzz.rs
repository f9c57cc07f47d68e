//! Bad input for everything that reads what a pod's author or a node's administrator wrote (DESIGN §6): no panic, one
//! bounded line as the answer, and what is accepted stays inside the limits.

use pod_spec::{Node, Pattern, limits};
use testkit::fuzz::fuzz_text;

/// Annotations, one `key: value` a line, without the prefix.
const PODS: [&str; 6] = [
    "plan: fetch=init, proxy=sidecar, app=main\nready.proxy: http::15021/healthz/ready;period=100ms;fail=3;ok=2",
    "plan: a+b=init, x|y=sidecar, long-name@px=sidecar, *=main\nmigrate.x: exec:migrate\ngrace.px: 3s\nfatal.px: exit",
    "plan: db=sidecar, app=main, job=main\nafter.app: db=ready, job=done\nrestart-policy: Never\ngate-timeout: 5m",
    "plan: s=sidecar, app=main\nready.s: log:^ready [0-9]+(ms|s)?$\nrestart.s: always;first=0s;base=1s;max=60s;limit=7",
    "plan: s=sidecar, app=main\nready.s: exec:[\"sh\", \"-c\", \"test -e '/x y'\"]\npre-stop.s: exec:sleep 1\nstop-signal.s: RTMIN+3",
    "plan: s=sidecar, app=main\nready.s: tcp:[::1]:80;delay=1s\non-terminate.s: exec:a b\nzero-grace: order\nexit-codes: real\noom-score: protect\ngrace: 90s",
];
const NODES: [&str; 2] = [
    "grace = \"30s\"\nzero-grace = \"order\"\nforbid = [\"exec\", \"http\"] # why\n",
    "max-grace = '5m'\ngate-timeout = \"1h\"\n\n",
];
const PATTERNS: [&str; 4] =
    ["(?i)ready|serving$", r"^started in \d+(\.\d+)? ?m?s", "[^a-z\\]]{2,30}x*?", "((a|b)*c){3}"];
/// Sixteen errors of some hundred bytes each.
const LONGEST_ANSWER: usize = 16 * 1024;

fn annotations(text: &str) -> Vec<(String, &str)> {
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    pairs.map(|(key, value)| (format!("{}{key}", pod_spec::PREFIX), value)).collect()
}

fn is_a_line(answer: &str) -> bool {
    !answer.is_empty() && answer.len() <= LONGEST_ANSWER && !answer.contains(char::is_control)
}

#[test]
fn fuzz_annotations() {
    for pod in PODS {
        let pairs = annotations(pod);
        let pairs = pairs.iter().map(|(key, value)| (key.as_str(), *value));
        pod_spec::parse(pairs).unwrap_or_else(|error| panic!("{pod} reaches nothing: {error}"));
    }
    fuzz_text(&PODS, |text| {
        let pairs = annotations(text);
        match Node::default().parse_pod(pairs.iter().map(|(key, value)| (key.as_str(), *value))) {
            Ok(parsed) => {
                let members = parsed.plan.map_or(0, |plan| plan.members.len());
                assert!(members <= limits::MAX_CONTAINERS, "{members} containers");
            }
            Err(error) => assert!(is_a_line(&error.to_string()), "{error}"),
        }
    });
}

#[test]
fn fuzz_node_files() {
    fuzz_text(&NODES, |text| {
        if let Err(error) = Node::parse(text) {
            assert!(is_a_line(&error.to_string()), "{error}");
        }
    });
}

#[test]
fn fuzz_patterns() {
    const LINE: &str = "2026-11-21 started in 12.5 ms, ready and serving aaabbbcccabc";
    for pattern in PATTERNS {
        Pattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern} reaches nothing: {error}"));
    }
    fuzz_text(&PATTERNS, |text| match Pattern::parse(text) {
        Ok(pattern) => drop(pattern.matcher().is_match(LINE)),
        Err(error) => assert!(is_a_line(&error.to_string()), "{error}"),
    });
}
