//! dist/monitoring: each query of the alerts and the dashboard names metrics and labels that podshim writes; Prometheus' own
//! promtool takes rules and queries, and each alert fires as the rules' tests say. tests/tests/operator/metrics.rs has
//! Prometheus read a real node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use control_api::container::{Role, State};
use control_api::{Container, Cost, InspectResponse};
use manifests::yaml::documents;
use node_state::counts::{Count, CountedRole, Counts, Measure};
use podshim::commands::table;
use podshim::metrics::{exposition, older_format};
use podshim::pods::PodReport;
use serde_json::Value;

/// For each metric the labels of its samples.
type Series = BTreeMap<String, BTreeSet<String>>;

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/monitoring")
}

fn read(file: &str) -> String {
    fs::read_to_string(directory().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The metrics of a node on which each thing has happened once.
fn output() -> String {
    let pod = InspectResponse {
        pod_name: "web".to_owned(),
        pod_namespace: "shop".to_owned(),
        longest_away_us: Some(1),
        streams_longest_away_us: Some(1),
        streams_away_us: Some(1),
        cost: Some(Cost::default()).into(),
        containers: vec![Container {
            name: "app".to_owned(),
            role: Role::MAIN.into(),
            state: State::HELD.into(),
            real_exit_code: Some(1),
            restart_in_ms: Some(1),
            gate_wait_ms: Some(1),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut counts = Counts::default();
    for measure in [
        Measure::GateWait(CountedRole::Main),
        Measure::Stop(CountedRole::Main),
        Measure::RuntimeCall("create"),
    ] {
        counts.observe(measure, Duration::from_secs(1));
    }
    counts.add(Count::EventsDropped);
    exposition(&[PodReport::of_answer(pod)], &BTreeMap::from([("shop".to_owned(), counts)]))
}

/// A new pod has the name of one that still ends, and a container that of an earlier one: no series is there twice, which
/// Prometheus refuses, and the values are the newest's. The strictest parser, that of Prometheus' client library, takes it.
#[test]
fn a_name_that_is_used_again_has_each_series_once() {
    let container = |state: State, code| Container {
        name: "app".to_owned(),
        role: Role::MAIN.into(),
        state: state.into(),
        real_exit_code: code,
        ..Default::default()
    };
    let pod = |id: &str, started_at_ms, containers| {
        PodReport::of_answer(InspectResponse {
            id: id.to_owned(),
            pod_uid: format!("uid-of-{id}"),
            pod_name: "web-0".to_owned(),
            pod_namespace: "shop".to_owned(),
            started_at_ms,
            longest_away_us: Some(1000),
            cost: Some(Cost::default()).into(),
            containers,
            ..Default::default()
        })
    };
    let pods = [
        pod("new", 2000, vec![container(State::EXITED, Some(3)), container(State::RUNNING, None)]),
        pod("old", 1000, vec![container(State::EXITED, Some(7))]),
    ];
    for pods in
        [&pods[..], &[pod("old", 1000, vec![]), pod("new", 2000, vec![container(State::RUNNING, None)])]]
    {
        let text = exposition(pods, &BTreeMap::new());
        let mut seen = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').expect("a value");
            assert!(seen.insert(series), "{series} is there twice:\n{text}");
        }
        assert!(
            seen.contains("podshim_pod_info{namespace=\"shop\",pod=\"web-0\",id=\"new\",release=\"\"}"),
            "{text}"
        );
        let state =
            "podshim_container_state{namespace=\"shop\",pod=\"web-0\",container=\"app\",role=\"main\",state=";
        let states: Vec<_> = seen.iter().filter_map(|series| series.strip_prefix(state)).collect();
        assert_eq!(states, ["\"running\"}"], "{text}");
        assert!(text.contains("podshim_pods{state=\"stopped\"} ") && !text.contains("\"old\""), "{text}");
        strict_parser_takes(&text);
    }
}

fn strict_parser_takes(text: &str) {
    parser(text, "openmetrics.parser", "print(len(list(families)))");
}

/// What a program prints of the families that Prometheus' client library reads in a text.
fn parser(text: &str, module: &str, program: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), text).expect("a file");
    let program = format!(
        "import sys\nfrom prometheus_client.{module} import text_string_to_metric_families as parse\n\
         families = parse(open(sys.argv[1]).read())\n{program}"
    );
    #[expect(clippy::disallowed_methods, reason = "a test runs the parser as users do")]
    let output = Command::new("/usr/bin/python3").args(["-c", &program]).arg(file.path()).output();
    let output = output.expect("python3: hack/setup installs it");
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// In Prometheus' older format help and type name the samples: with a counter's `_total`.
#[test]
fn found_n16_every_sample_of_the_older_format_has_a_type_and_a_help() {
    let open_metrics = output();
    let text = older_format(&open_metrics);
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    let show = "for f in families: print(f.name, f.type, bool(f.documentation), sorted({s.name for s in f.samples}))";
    let read = parser(&text, "parser", show);
    let families: Vec<_> = read.lines().collect();
    let untyped: Vec<_> =
        families.iter().filter(|line| line.contains(" unknown ") || line.contains(" False ")).collect();
    assert!(untyped.is_empty(), "{untyped:?}\n{text}");
    assert!(families.contains(&"podshim_restarts counter True ['podshim_restarts_total']"), "{families:?}");
    assert!(
        families.iter().any(|line| line.starts_with("podshim_stop_seconds histogram True ")),
        "{families:?}"
    );
    // No sample is lost or changed.
    let samples = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(samples(&text), samples(&open_metrics));
}

/// Of a fleet's alerts each names its node; and each leads to its paragraph in docs/metrics.md, which hack/book has as a page.
#[test]
fn found_n16_each_alert_keeps_its_node_and_leads_to_its_paragraph() {
    let (alerts, page) = (read("alerts.yaml"), read("../../docs/metrics.md"));
    let (names, expressions) = (values(&alerts, "alert:"), values(&alerts, "expr:"));
    assert!(names.len() > 10 && names.len() == expressions.len(), "{names:?}");
    for (name, query) in names.iter().zip(&expressions) {
        for grouping in ["by (", "on ("] {
            for (start, _) in query.match_indices(grouping) {
                let labels = query[start + grouping.len()..].split(')').next().unwrap_or_default();
                assert!(labels.split(", ").any(|label| label == "instance"), "{name}: {query}");
            }
        }
        let aggregates =
            ["sum", "max", "min", "avg", "count"].iter().any(|word| query.contains(&format!("{word}(")));
        assert!(!aggregates, "{name} drops its labels: {query}");
        let address = format!("https://podshim.example/metrics.html#{}", name.to_lowercase());
        assert!(values(&alerts, "runbook_url:").contains(&format!("\"{address}\"")), "{name}");
        assert!(page.contains(&format!("\n### {name}\n")), "docs/metrics.md lacks {name}");
    }
    let summaries = values(&alerts, "summary:");
    assert!(summaries.iter().all(|text| text.contains("{{ $labels.instance }}")), "{summaries:?}");
}

/// The dashboard can be of one node, and takes no rate of what may fall.
#[test]
fn found_n16_the_dashboard_is_of_chosen_nodes_and_rates_counters_only() {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    assert!(variables.filter(|variable| variable["name"] == "instance").count() == 1);
    let text = output();
    let gauges = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
    let gauges: BTreeSet<_> = gauges.collect();
    for query in dashboard_queries().into_iter().chain(values(&read("alerts.yaml"), "expr:")) {
        for function in ["rate(", "increase("] {
            for (start, _) in query.match_indices(function) {
                let rest = &query[start + function.len()..];
                let name = rest.split(|letter| !is_of_name(letter)).next().unwrap_or_default();
                assert!(!gauges.contains(name), "a rate of a gauge: {query}");
            }
        }
    }
    for query in dashboard_queries() {
        let named = query.matches("podshim_").count();
        assert_eq!(query.matches("{instance=~\"$instance\"").count(), named, "{query}");
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The names of the labels between braces.
fn labels(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.trim_end_matches('!').trim();
        labels.insert(name.rsplit(|letter| !is_of_name(letter)).next().unwrap_or_default().to_owned());
        let value = after.trim_start_matches('~');
        rest = value.get(1..).and_then(|value| value.split_once('"')).map_or("", |(_, rest)| rest);
    }
    labels
}

/// The metrics of podshim that a text names, with the labels in their braces.
fn metrics_in(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let starts = text.match_indices("podshim_").map(|(start, _)| &text[start..]);
    let named = starts.map(|rest| {
        let end = rest.find(|letter| !is_of_name(letter)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        (name.to_owned(), braces.map(|(inside, _)| labels(inside)).unwrap_or_default())
    });
    named.collect()
}

fn series() -> Series {
    let mut series = Series::new();
    for line in output().lines().filter(|line| !line.starts_with('#')) {
        for (name, labels) in metrics_in(line) {
            series.entry(name).or_default().extend(labels);
        }
    }
    series
}

/// What a query names and podshim does not write.
fn unknown(query: &str, series: &Series) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut known: BTreeSet<&str> = OF_PROMETHEUS.into();
    for (name, used) in metrics_in(query) {
        let Some(labels) = series.get(&name) else {
            unknown.push(name);
            continue;
        };
        known.extend(labels.iter().map(String::as_str));
        let foreign = used.iter().filter(|label| !labels.contains(*label));
        unknown.extend(
            foreign
                .filter(|label| !OF_PROMETHEUS.contains(&label.as_str()))
                .map(|it| format!("{name}: {it}")),
        );
    }
    for word in ["by (", "on ("] {
        for (start, _) in query.match_indices(word) {
            let inside = query[start + word.len()..].split(')').next().unwrap_or_default();
            let grouped = inside.split(',').map(str::trim).filter(|label| !known.contains(label));
            unknown.extend(grouped.map(|label| format!("{word}{label})")));
        }
    }
    unknown
}

/// The values of a key in a YAML file whose lines have one each.
fn values(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
    lines.map(|value| value.trim().to_owned()).collect()
}

fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

#[expect(clippy::disallowed_methods, reason = "a test runs promtool as users do")]
fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(directory()).output();
    let output = output.expect("promtool: hack/setup installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn queries_name_what_podshim_writes() {
    let series = series();
    let (alerts, tests) = (read("alerts.yaml"), read("alerts.test.yaml"));
    let objectives = values(&read("objectives.yaml"), "expr:");
    let queries = [values(&alerts, "expr:"), objectives.clone(), dashboard_queries()].concat();
    assert_eq!(objectives.len(), 4, "{objectives:?}");
    assert!(queries.len() > 20, "{queries:?}");
    let tests = tests + &read("objectives.test.yaml");
    let tested = tests.lines().filter_map(|line| line.split_once("series: '")).map(|(_, rest)| {
        let end = rest.find("}'").map_or(rest.len(), |end| end + 1);
        rest[..end].to_owned()
    });
    let all: Vec<_> = queries.into_iter().chain(tested).collect();
    for query in &all {
        assert_eq!(unknown(query, &series), [""; 0], "{query}");
    }
    // The check itself finds what is wrong.
    for (wrong, found) in [
        ("sum(podshim_restart_total)", "podshim_restart_total"),
        ("podshim_restarts_total{pod=\"a\"}", "podshim_restarts_total: pod"),
        ("sum by (colour) (podshim_restarts_total)", "by (colour)"),
    ] {
        assert_eq!(unknown(wrong, &series), [found]);
    }
}

#[test]
fn promtool_takes_the_alerts_and_each_of_them_fires() {
    promtool(&["check", "rules", "alerts.yaml"]);
    promtool(&["test", "rules", "alerts.test.yaml"]);
}

#[test]
fn promtool_takes_the_objectives_and_records_them() {
    promtool(&["check", "rules", "objectives.yaml"]);
    promtool(&["test", "rules", "objectives.test.yaml"]);
}

/// A query of the dashboard is a rule like any other, once Grafana has put in the variables.
#[test]
fn promtool_takes_the_dashboards_queries() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let rules: Vec<Value> = dashboard_queries()
        .into_iter()
        .map(|query| serde_json::json!({"record": "a:query", "expr": query.replace("$namespace", "shop").replace("$instance", "a")}))
        .enumerate()
        .map(|(number, mut rule)| {
            rule["record"] = format!("query:{number}").into();
            rule
        })
        .collect();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    // JSON is YAML.
    fs::write(file.path(), groups.to_string()).expect("a file");
    promtool(&["check", "rules", &file.path().to_string_lossy()]);
}

#[test]
fn the_operators_rule_object_has_the_same_groups() {
    let alerts = read("alerts.yaml");
    let (_, groups) = alerts.split_once("groups:\n").expect("groups");
    // Its comment names the other file.
    assert!(alerts.contains("# dist/monitoring/kubernetes/rules.yaml "), "{alerts}");
    let object = read("kubernetes/rules.yaml");
    let (_, own) = object.split_once("  groups:\n").expect("groups");
    let unindented: Vec<_> = own.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    assert_eq!(unindented, groups.lines().collect::<Vec<_>>());
}

/// Each metric has its line in docs/metrics.md.
#[test]
fn the_page_has_every_metric() {
    let page = fs::read_to_string(directory().join("../../docs/metrics.md")).expect("docs/metrics.md");
    let text = output();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = families.map(|(name, kind)| match kind {
        "counter" => format!("{name}_total"),
        _ => name.to_owned(),
    });
    let missing: Vec<_> = names.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert_eq!(missing, [""; 0]);
}

/// kustomize renders the exporter; its images name no registry, and its command is one of podshim's.
#[test]
fn the_exporters_objects_fit_together() {
    #[expect(clippy::disallowed_methods, reason = "a test runs kustomize as users do")]
    let output = Command::new("kubectl").args(["kustomize", "kubernetes"]).current_dir(directory()).output();
    let output = output.expect("kubectl: hack/setup installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rendered = String::from_utf8(output.stdout).expect("UTF-8");
    let objects: Vec<_> = documents(&rendered).expect("YAML").into_iter().map(|it| it.root).collect();
    let of =
        |kind: &str| objects.iter().find(|object| object.text_of("kind") == Some(kind)).expect("an object");
    let containers = of("DaemonSet").at(&["spec", "template", "spec", "containers"]).expect("containers");
    let images: Vec<_> = containers.items().iter().filter_map(|it| it.text_of("image")).collect();
    assert_eq!(images, [format!("podshim:{}", env!("CARGO_PKG_VERSION")).as_str(), "kube-rbac-proxy"]);
    let selinux = containers.items()[0].at(&["securityContext", "seLinuxOptions", "type"]);
    assert_eq!(selinux.and_then(|it| it.text()), Some("spc_t"), "it connects to the shims' sockets");
    let arguments = containers.items()[0].get("args").expect("arguments").items();
    let words = std::iter::once("podshim").chain(arguments.iter().filter_map(|word| word.text()));
    table().try_get_matches_from(words).expect("podshim's words");
    let labels = ["spec", "selector", "matchLabels", "app.kubernetes.io/name"];
    let selected = |kind: &str| of(kind).at(&labels).and_then(|label| label.text()).map(str::to_owned);
    assert_eq!(selected("PodMonitor"), selected("DaemonSet"));
    assert!(selected("PodMonitor").is_some());
}
