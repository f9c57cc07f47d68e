//! dist/policy, as docs/admission.md describes it: its expressions are evaluated on pods, what it writes is read by
//! podshim's own parser, and the plan is that of `podshim translate`. No API server is asked: hack/cluster's is of 1.20.

mod admission;
mod cost;
mod costs;
mod play;
mod started;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use manifests::check::CheckContext;
use manifests::finding::Severity;
use manifests::manifest;
use manifests::source::Source;
use manifests::translate::{Target, translate};
use manifests::yaml::{Document, Node, documents};
use node_setup::install::containerd::HANDLER;
use pod_spec::{Order, Others, Plan, RestartPolicy, Role};
use podshim::check::{FileKind, check};
use serde_json::{Value, json};

use admission::{Admitted, Policy, directory, objects, pod};
use support::{annotations, names, native_sidecars};

const LABEL: &str = "podshim.io/policy";

/// The pod of a name in pods.yaml.
fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policy/pods.yaml");
    let pods = documents(&fs::read_to_string(path).expect("pods.yaml")).expect("YAML");
    let found = pods.iter().find(|it| it.root.at(&["metadata", "name"]).and_then(Node::text) == Some(name));
    pod(&found.unwrap_or_else(|| panic!("no pod {name}")).root)
}

/// The annotations of podshim, without the prefix.
fn own(pod: &Value) -> BTreeMap<String, String> {
    let all = annotations(pod).into_iter();
    all.filter_map(|(key, value)| Some((key.strip_prefix(pod_spec::PREFIX)?.to_owned(), value))).collect()
}

fn expected(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The pod after the policy. What was written is what podshim accepts, and another time the policy writes nothing.
fn admitted(policy: &Policy, mut pod: Value) -> Value {
    let before = annotations(&pod);
    assert!(matches!(policy.admit(&mut pod), Admitted::Patched(_)), "{pod:#}");
    let after = annotations(&pod);
    for (key, value) in before {
        assert_eq!(after[&key], value, "{key} was there already");
    }
    assert_eq!(pod["spec"]["runtimeClassName"], HANDLER);
    assert_eq!(policy.admit(&mut pod.clone()), Admitted::Patched(Vec::new()), "the second time");
    check_waits(&plan(&pod), &pod);
    check_as_users_do(&pod);
    pod
}

/// `podshim check` finds no error, but for a sidecar that is not there yet.
fn check_as_users_do(pod: &Value) {
    let mut manifest = pod.clone();
    manifest["apiVersion"] = json!("v1");
    manifest["kind"] = json!("Pod");
    let source = Source { name: "pod".to_owned(), text: manifest.to_string() };
    let context = CheckContext { injected: vec!["istio-proxy".to_owned()], ..CheckContext::default() };
    let (kind, findings) = check(&source, &context, None);
    assert_eq!(kind, FileKind::Pods(1));
    let errors: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{pod:#}");
}

/// A pod that the policy leaves as it is, by which condition.
fn skipped(policy: &Policy, mut pod: Value) -> String {
    let before = pod.clone();
    let Admitted::Skipped(condition) = policy.admit(&mut pod) else { panic!("admitted: {pod:#}") };
    assert_eq!(pod, before);
    condition
}

fn plan(pod: &Value) -> Plan {
    let annotations = annotations(pod);
    let pairs = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    pod_spec::parse(pairs).unwrap_or_else(|error| panic!("{error}\n{annotations:#?}")).plan.expect("a plan")
}

/// A kubelet creates what follows a native sidecar only when that has started. So no native sidecar may wait for what
/// the kubelet creates after it.
fn check_waits(plan: &Plan, pod: &Value) {
    let order = Order::of(plan);
    let inits = names(pod, "initContainers");
    for native in native_sidecars(pod) {
        let Some(index) = plan.members.iter().position(|member| member.name == native) else { continue };
        let place = inits.iter().position(|name| *name == native);
        for link in order.links(index).iter().filter(|link| link.until.is_some()) {
            let awaited = inits.iter().position(|name| *name == plan.members[link.earlier].name);
            let awaited_name = &plan.members[link.earlier].name;
            assert!(
                awaited.is_some_and(|awaited| Some(awaited) < place),
                "{native} waits for {awaited_name}"
            );
        }
    }
}

#[test]
fn a_pod_without_sidecars_gets_its_mains_and_its_class() {
    let policy = Policy::read();
    let pod = admitted(&policy, fixture("plain"));
    assert_eq!(own(&pod), expected(&[("role.web", "main")]));
    let pod = admitted(&policy, fixture("two-mains"));
    assert_eq!(own(&pod), expected(&[("role.a", "main"), ("role.b", "main")]));
    assert_eq!(annotations(&pod)["example.com/team"], "shop");
}

#[test]
fn s10_s9_t1_native_sidecars_keep_their_order_whatever_their_names() {
    let pod = admitted(&Policy::read(), fixture("native"));
    let wanted = expected(&[
        ("role.web", "main"),
        ("role.zeta", "sidecar"),
        ("role.mid", "sidecar"),
        ("role.alpha", "sidecar"),
        ("after.mid", "zeta=ready"),
        ("after.alpha", "mid=ready"),
        ("role.fetch", "none"),
    ]);
    assert_eq!(own(&pod), wanted);
    play::check_trace(&pod, &play::play(&pod));
    // The sidecar that others wait for stops last (T1).
    let (plan, order) = (plan(&pod), Order::of(&plan(&pod)));
    let index = |name| plan.members.iter().position(|member| member.name == name).expect("a member");
    assert!(pod_spec::needs(order.links(index("alpha")), index("zeta")));
    assert!(order.links(index("zeta")).is_empty());
    assert!(pod_spec::needs(order.links(index("web")), index("alpha")));
}

#[test]
fn s11_j1_a_job_names_its_mains_and_its_restart_policy() {
    let policy = Policy::read();
    let pod = admitted(&policy, fixture("job"));
    let wanted = [("role.import", "main"), ("role.proxy", "sidecar"), ("restart-policy", "Never")];
    assert_eq!(own(&pod), expected(&wanted));
    assert_eq!(plan(&pod).settings.restart_policy, RestartPolicy::Never);

    // A sidecar that a webhook adds to `containers`: its role is said by hand, before it is there.
    let mut pod = admitted(&policy, fixture("job-of-a-mesh"));
    let wanted = [("role.import", "main"), ("role.istio-proxy", "sidecar"), ("restart-policy", "OnFailure")];
    assert_eq!(own(&pod), expected(&wanted));
    add(&mut pod, "containers", 0, json!({"name": "istio-proxy"}));
    assert_eq!(own(&admitted(&policy, pod)), expected(&wanted));
}

fn add(pod: &mut Value, list: &str, place: usize, container: Value) {
    if pod["spec"].get(list).is_none() {
        pod["spec"][list] = json!([]);
    }
    pod["spec"][list].as_array_mut().expect("a list").insert(place, container);
}

/// reinvocationPolicy: a webhook between two rounds adds a container.
#[test]
fn what_a_webhook_adds_is_a_sidecar_if_it_is_native_and_else_nothing() {
    let policy = Policy::read();
    for (place, added, old) in [
        (0, None, Some(("after.zeta", "zz-proxy=ready"))),
        (1, Some("zeta=ready"), None),
        (2, Some("zeta=ready"), None),
        (4, Some("alpha=ready"), None),
    ] {
        let mut pod = admitted(&policy, fixture("native"));
        let mut wanted = own(&pod);
        add(&mut pod, "initContainers", place, json!({"name": "zz-proxy", "restartPolicy": "Always"}));
        add(&mut pod, "containers", 0, json!({"name": "debugger"}));
        wanted.insert("role.zz-proxy".to_owned(), "sidecar".to_owned());
        wanted.extend(added.map(|value| ("after.zz-proxy".to_owned(), value.to_owned())));
        wanted.extend(old.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(own(&admitted(&policy, pod)), wanted, "at {place}");
    }
}

#[test]
fn what_is_written_by_hand_stays() {
    let policy = Policy::read();
    // A role and a gate of its author; `logs` comes behind the native sidecar, which cannot wait for it.
    let pod = admitted(&policy, fixture("with-roles"));
    let wanted = [
        ("role.logs", "sidecar"),
        ("ready.logs", "tcp::24224"),
        ("role.proxy", "sidecar"),
        ("after.logs", "proxy=ready"),
        ("role.web", "main"),
        ("drain-priority", "1000"),
    ];
    assert_eq!(own(&pod), expected(&wanted));
    // An author who names one main names them all.
    let pod = admitted(&policy, fixture("with-a-main"));
    assert_eq!(own(&pod), expected(&[("role.web", "main"), ("role.proxy", "sidecar")]));
    // A plan: nothing but the restart policy beside it.
    let with_plan = own(&fixture("with-plan"));
    let pod = admitted(&policy, fixture("with-plan"));
    let mut wanted = with_plan.clone();
    wanted.insert("restart-policy".to_owned(), "Never".to_owned());
    assert_eq!((own(&pod), with_plan.len()), (wanted, 2));
    // 11.4 refuses `*=main` in a job. The policy adds nothing that a pod would be refused for; `podshim check` reports it.
    let mut pod = fixture("with-plan-and-rest");
    let Admitted::Patched(patch) = policy.admit(&mut pod) else { panic!("skipped") };
    assert_eq!(patch.iter().map(|add| add.path.as_str()).collect::<Vec<_>>(), ["/spec/runtimeClassName"]);
}

#[test]
fn pods_that_are_not_podshims_stay_as_they_are() {
    let policy = Policy::read();
    assert_eq!(skipped(&policy, fixture("other-class")), "has-no-other-runtime-class");
    assert_eq!(skipped(&policy, fixture("mirror")), "is-no-mirror-pod");
    let mut pod = fixture("mirror");
    pod["metadata"]["annotations"].as_object_mut().expect("them").remove("kubernetes.io/config.mirror");
    admitted(&policy, pod);
    let named = |length| {
        let mut pod = fixture("plain");
        let name = "n".repeat(length);
        pod["spec"]["initContainers"] =
            json!([{"name": "first", "restartPolicy": "Always"}, {"name": name, "restartPolicy": "Always"}]);
        pod
    };
    assert_eq!(skipped(&policy, named(58)), "names-fit-into-keys");
    let longest = own(&admitted(&policy, named(57))).into_keys().map(|key| key.len()).max();
    assert_eq!(longest, Some(63), "the longest part of a key that Kubernetes takes");
    // With a plan the author has given it an alias.
    let mut pod = named(58);
    pod["metadata"]["annotations"] = json!({"podshim.io/plan": "web=main"});
    admitted(&policy, pod);
}

#[test]
fn found_k10_pods_of_windows_stay_as_they_are() {
    let policy = Policy::read();
    let mut pod = fixture("plain");
    pod["spec"]["os"] = json!({"name": "windows"});
    assert_eq!(skipped(&policy, pod.clone()), "is-not-of-windows");
    pod["spec"]["os"] = json!({"name": "linux"});
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
    assert_eq!(skipped(&policy, pod.clone()), "is-not-of-windows");
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux", "disk": "ssd"});
    admitted(&policy, pod);
}

/// The kubelet's own inits, beside roles and beside a plan that names some of them.
#[test]
fn s8_found_k1_each_init_that_the_plan_does_not_name_is_the_kubelets_own() {
    let policy = Policy::read();
    let inits = ["istio-init", "fetch", "init", "px", "warm", "a"];
    let mut pod = fixture("with-plan-and-rest");
    pod["spec"]["restartPolicy"] = json!("Always");
    pod["spec"]["initContainers"] = inits.iter().map(|name| json!({"name": name, "image": "x"})).collect();
    pod["metadata"]["annotations"]["podshim.io/plan"] =
        json!("prefetch@px=init, fetch-a + warm =init,\n proxy|proxy-2=sidecar, a =none, *=main");
    let wanted = ["istio-init", "fetch", "init"].map(|name| (format!("role.{name}"), "none".to_owned()));
    let mut wanted = BTreeMap::from(wanted);
    let Admitted::Patched(_) = policy.admit(&mut pod) else { panic!("skipped") };
    let mut found = own(&pod);
    found.remove("plan");
    assert_eq!(found, wanted, "an alias and what a group names are left out");
    plan(&pod);

    // Its author has given one of them another role, which counts.
    let mut pod = fixture("native");
    pod["metadata"]["annotations"] = json!({"podshim.io/role.fetch": "init", "podshim.io/role.mid": "none"});
    wanted = expected(&[
        ("role.web", "main"),
        ("role.zeta", "sidecar"),
        ("role.fetch", "init"),
        ("role.mid", "none"),
        ("role.alpha", "sidecar"),
        ("after.fetch", "zeta=ready"),
        ("after.alpha", "zeta=ready"),
    ]);
    assert_eq!(own(&admitted(&policy, pod)), wanted);
}

/// The `restart` that a main of its own policy and rules gets in a pod of another policy.
fn restart_of(pod_policy: &str, container: &Value) -> Option<String> {
    let mut pod = fixture("plain");
    pod["spec"]["restartPolicy"] = json!(pod_policy);
    pod["spec"]["containers"][0]
        .as_object_mut()
        .expect("it")
        .extend(container.as_object().expect("an object").clone());
    own(&admitted(&Policy::read(), pod)).remove("restart.web")
}

#[test]
fn r13_r15_found_k4_a_containers_own_restart_policy_is_carried_over() {
    for (pod_policy, own, wanted) in [
        ("Never", "Never", None),
        ("Never", "OnFailure", Some("on-failure")),
        ("Never", "Always", Some("always")),
        ("OnFailure", "Never", Some("never")),
        ("OnFailure", "OnFailure", None),
        ("OnFailure", "Always", Some("always")),
        ("Always", "Never", Some("never")),
        ("Always", "OnFailure", Some("on-failure")),
        ("Always", "Always", None),
    ] {
        let restart = restart_of(pod_policy, &json!({"restartPolicy": own}));
        assert_eq!(restart.as_deref(), wanted, "{own} in {pod_policy}");
    }
}

#[test]
fn r13_found_k4_rules_of_one_action_are_carried_over() {
    let rule = |operator: &str, values: &[i64], action: &str| json!({"action": action, "exitCodes": {"operator": operator, "values": values}});
    let restart = |operator, values| rule(operator, values, "Restart");
    let all = |operator, values| rule(operator, values, "RestartAllContainers");
    for (pod_policy, own, rules, wanted) in [
        ("Never", "Never", vec![restart("In", &[42])], Some("on-failure;codes=42")),
        (
            "Never",
            "Never",
            vec![restart("In", &[42, 0, 300, -1]), restart("In", &[7])],
            Some("on-failure;codes=0,42,7"),
        ),
        ("Always", "Never", vec![restart("In", &[0])], Some("on-failure;codes=0")),
        // No program exits with these.
        ("OnFailure", "Never", vec![restart("In", &[300])], Some("never")),
        ("Never", "Never", vec![restart("In", &[300])], None),
        ("Never", "Never", vec![restart("NotIn", &[0, 3])], Some("on-failure;not=3")),
        ("Never", "Never", vec![restart("NotIn", &[0])], Some("on-failure")),
        ("Never", "OnFailure", vec![restart("In", &[3])], Some("on-failure")),
        ("OnFailure", "OnFailure", vec![restart("In", &[3])], None),
        ("OnFailure", "OnFailure", vec![restart("In", &[0, 3])], Some("always")),
        ("Never", "Always", vec![restart("In", &[3])], Some("always")),
        ("Always", "Always", vec![restart("In", &[3])], None),
        // The kubelet does it, as it sees the exit.
        ("Never", "Never", vec![all("In", &[42])], None),
        ("OnFailure", "Never", vec![all("In", &[42])], Some("never")),
        ("Never", "OnFailure", vec![all("In", &[42]), all("In", &[0, 43])], Some("on-failure;not=42,43")),
        ("OnFailure", "OnFailure", vec![all("In", &[42])], None),
        ("Always", "Always", vec![all("In", &[42])], None),
    ] {
        let container = json!({"restartPolicy": own, "restartPolicyRules": rules});
        assert_eq!(restart_of(pod_policy, &container).as_deref(), wanted, "{container} in {pod_policy}");
    }
    // What no word of `restart.c` says in short: `podshim translate` counts codes one by one.
    for rules in [
        vec![restart("NotIn", &[3])],
        vec![restart("In", &[1]), all("In", &[2])],
        vec![restart("In", &[1]), restart("NotIn", &[0, 2])],
        vec![restart("In", &(1..=21).collect::<Vec<_>>())],
        vec![all("NotIn", &[0])],
        vec![json!({"action": "Restart"})],
    ] {
        let mut pod = fixture("plain");
        pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
        pod["spec"]["containers"][0]["restartPolicyRules"] = rules.into();
        assert_eq!(skipped(&Policy::read(), pod), "restart-rules-fit-into-a-key");
    }
    // A plan is its author's matter, and so is a key.
    let mut pod = fixture("with-plan");
    pod["spec"]["containers"][0]["restartPolicy"] = json!("OnFailure");
    let Admitted::Patched(_) = Policy::read().admit(&mut pod) else { panic!("skipped") };
    assert!(!own(&pod).contains_key("restart.import"));
    let mut pod = fixture("plain");
    pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    pod["metadata"]["annotations"] = json!({"podshim.io/restart.web": "visible"});
    assert_eq!(own(&admitted(&Policy::read(), pod))["restart.web"], "visible");
}

/// podshim restarts a sidecar in place, and the kubelet would never see the exit that its rule is for.
#[test]
fn r15_found_k5_a_sidecar_whose_rule_restarts_all_containers_shows_its_exits() {
    let policy = Policy::read();
    let pod = admitted(&policy, fixture("sidecar-with-rules"));
    assert_eq!(own(&pod)["restart.proxy"], "visible");
    let pod = admitted(&policy, fixture("main-with-rules"));
    assert_eq!(own(&pod)["restart.import"], "on-failure;codes=42");
    // A sidecar is restarted after each exit as it is, and the kubelet's own init is the kubelet's matter.
    let mut pod = fixture("sidecar-with-rules");
    pod["spec"]["initContainers"][0]["restartPolicyRules"][0]["action"] = json!("Restart");
    assert!(!own(&admitted(&policy, pod)).contains_key("restart.proxy"));
    let pod = admitted(&policy, fixture("init-with-rules"));
    assert_eq!(own(&pod), expected(&[("role.web", "main"), ("role.fetch", "none")]));
    // `restart.` is longer than `after.`.
    for (length, fits) in [(55, true), (56, false)] {
        let mut pod = fixture("sidecar-with-rules");
        pod["spec"]["initContainers"][0]["name"] = json!("n".repeat(length));
        match fits {
            true => drop(admitted(&policy, pod)),
            false => assert_eq!(skipped(&policy, pod), "names-fit-into-keys"),
        }
    }
}

/// The pods of `translate`'s own tests: the same sidecars, mains and restart policy, and the same relation among them. Each
/// is played, too.
#[test]
fn s9_t1_the_plan_is_that_of_translate() {
    let policy = Policy::read();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/translate");
    let paths = fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry").path());
    let is_manifest =
        |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "yaml" || it == "json");
    let (mut compared, mut left) = (0, BTreeSet::new());
    for path in paths.filter(is_manifest) {
        let source = podshim::source::read(path.to_str().expect("UTF-8")).expect("a file");
        let target = Target { runtime_class: HANDLER, sidecar_sets: &[] };
        let translated = translate(&source, target).expect("YAML").text;
        let (before, after) = (documents(&source.text).expect("YAML"), documents(&translated).expect("YAML"));
        let templates = before.iter().flat_map(manifest::templates);
        for (template, translated) in templates.zip(after.iter().flat_map(manifest::templates)) {
            let file = path.file_name().expect("a name").to_string_lossy().into_owned();
            let mut original = pod(template.pod);
            let is_translated =
                native_sidecars(&original).len() > native_sidecars(&pod(translated.pod)).len();
            if let Admitted::Skipped(condition) = policy.admit(&mut original) {
                left.insert(format!("{file}: {condition}"));
                continue;
            }
            let own = admitted(&policy, original);
            if is_translated {
                let of_translate = plan(&pod(translated.pod));
                assert_eq!(relation(&plan(&own)), relation(&of_translate), "{file}");
                assert_eq!(
                    plan(&own).settings.restart_policy,
                    of_translate.settings.restart_policy,
                    "{file}"
                );
                play::check_trace(&own, &play::play(&own));
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "only {compared}");
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    assert_eq!(
        left,
        [
            "13-long-names.yaml: names-fit-into-keys",
            "14-other-runtime.yaml: has-no-other-runtime-class",
            "28-restart-rules.yaml: restart-rules-fit-into-a-key"
        ]
    );
}

/// Each sidecar and main, its role, and what it needs, inits left out: the policy leaves those to the kubelet.
fn relation(plan: &Plan) -> BTreeMap<&str, (Role, BTreeSet<&str>)> {
    let order = Order::of(plan);
    let is_init = |index: usize| plan.members[index].role == Role::Init;
    let members = plan.members.iter().enumerate().filter(|(index, _)| !is_init(*index));
    members
        .map(|(index, member)| {
            let needed =
                order.links(index).iter().map(|link| link.earlier).filter(|earlier| !is_init(*earlier));
            let needed = needed.map(|earlier| plan.members[earlier].name.as_str()).collect();
            (member.name.as_str(), (member.role, needed))
        })
        .collect()
}

/// docs/admission.md: what a SidecarSet patches is a plan without a word of the pod's author, in pods that live on.
#[test]
fn s11_the_sidecar_set_of_the_page_says_a_plan() {
    let page = fs::read_to_string(directory().join("../../docs/admission.md")).expect("the page");
    let (_, example) = page.split_once("```yaml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let set = documents(example).expect("YAML").remove(0).root;
    let patch = &set.at(&["spec", "patchPodMetadata"]).expect("a patch").items()[0];
    let mut pod = json!({"metadata": {"annotations": {}}});
    for (key, value) in manifest::pairs(patch.get("annotations").expect("annotations")) {
        pod["metadata"]["annotations"][key] = Value::from(value);
    }
    let plan = plan(&pod);
    let container = set.at(&["spec", "containers"]).expect("containers").items()[0].text_of("name");
    assert_eq!(plan.members.iter().map(|member| Some(&*member.name)).collect::<Vec<_>>(), [container]);
    assert_eq!((plan.members[0].role, plan.others), (Role::Sidecar, Others::Mains));
}

/// Only what Kubernetes has from 1.34 on: the standard functions and macros of CEL, `replace` and `join` of its strings
/// extension, and Kubernetes' own (`indexOf` and `sum` of its lists library, `jsonpatch.escapeKey` of this kind of policy).
#[test]
fn the_expressions_call_nothing_that_kubernetes_lacks() {
    let policy = Policy::read();
    let all = policy.conditions.iter().chain(&policy.variables).map(|(_, expression)| expression.as_str());
    let mut called = BTreeSet::new();
    for expression in all.chain([policy.mutation.as_str()]) {
        for (before, _) in expression.match_indices('(').map(|(place, _)| expression.split_at(place)) {
            let word = before.rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
            called.extend(Some(word).filter(|word| !word.is_empty() && *word != "in"));
        }
    }
    let known = [
        "all",
        "contains",
        "escapeKey",
        "exists",
        "filter",
        "has",
        "indexOf",
        "join",
        "map",
        "replace",
        "size",
        "startsWith",
        "string",
        "sum",
    ];
    assert_eq!(called, BTreeSet::from(known));
}

#[test]
fn the_objects_agree() {
    let policy = objects("policy.yaml").remove(0);
    let text = |node: &Node, path: &[&str]| node.at(path).and_then(Node::text).unwrap_or_default().to_owned();
    assert_eq!(text(&policy, &["spec", "failurePolicy"]), "Fail");
    assert_eq!(text(&policy, &["spec", "reinvocationPolicy"]), "IfNeeded");
    let rules = policy.at(&["spec", "matchConstraints", "resourceRules"]).expect("rules").items();
    let texts =
        |key| rules[0].get(key).expect("a list").items().iter().filter_map(Node::text).collect::<Vec<_>>();
    assert_eq!((rules.len(), texts("operations"), texts("resources")), (1, vec!["CREATE"], vec!["pods"]));
    let bindings = objects("bindings.yaml");
    assert_eq!(bindings.len(), 2);
    for object in bindings.iter().chain([&policy]) {
        assert_eq!(object.text_of("apiVersion"), Some("admissionregistration.k8s.io/v1"));
    }
    for binding in &bindings {
        assert_eq!(text(binding, &["spec", "policyName"]), text(&policy, &["metadata", "name"]));
        let selectors = binding.at(&["spec", "matchResources"]).expect("a selection").entries();
        let keys = |(_, selector): &(Node, Node)| {
            let labels = selector.at(&["matchLabels", LABEL]).is_some();
            let expressions = selector.get("matchExpressions").map(Node::items).unwrap_or_default();
            labels || expressions.iter().any(|it| it.text_of("key") == Some(LABEL))
        };
        assert!(!selectors.is_empty() && selectors.iter().all(keys), "selected by the label");
    }
    assert!(
        policy.at(&["spec", "matchConditions"]).expect("conditions").items().len() <= 64,
        "Kubernetes' bound"
    );
}

/// What kustomize, which is in kubectl, makes of a directory below dist/policy.
fn rendered(below: &str) -> Vec<Document> {
    #[allow(clippy::disallowed_methods, reason = "a test runs kustomize as users do")]
    let output = std::process::Command::new("kubectl").arg("kustomize").arg(directory().join(below)).output();
    let output = output.expect("kubectl: hack/setup installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    documents(&String::from_utf8(output.stdout).expect("UTF-8")).expect("YAML")
}

#[test]
fn kustomize_renders_it() {
    let rendered = rendered("");
    let kinds: BTreeSet<_> = rendered.iter().filter_map(|it| it.root.text_of("kind")).collect();
    assert_eq!(kinds, BTreeSet::from(["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]));
    assert_eq!(rendered.len(), 3);
}
