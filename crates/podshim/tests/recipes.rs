//! The recipes of docs/injected.md, run as they stand: with what the injector adds to each, under a kubelet that knows no sidecars and
//! under one that does, neither of which says which of its containers are inits.

use std::fs;
use std::path::Path;

use manifests::check::CheckContext;
use manifests::finding::{Finding, Severity};
use manifests::manifest::{self, List};
use manifests::source::Source;
use manifests::yaml::documents;
use podshim::check::check;
use testkit::{Scenario, Simulator};

/// A pod of the page: its annotations, its own init containers and mains, and what is injected.
#[derive(Clone)]
struct Recipe {
    text: String,
    annotations: Vec<(String, String)>,
    policy: String,
    inits: Vec<String>,
    mains: Vec<String>,
    proxy: &'static str,
}

/// The init containers that come with a proxy, if the network is not set up by a CNI plugin; one of the two injectors uses the
/// names that podshim does not know as well.
const INJECTED_INITS: [(&str, &[&str]); 2] = [
    ("istio-proxy", &["istio-init", "istio-validation", "enable-core-dump"]),
    ("linkerd-proxy", &["linkerd-init", "linkerd-network-validator"]),
];

fn recipes() -> Vec<Recipe> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/injected.md");
    let page = fs::read_to_string(page).expect("the page");
    let blocks = page.split("```yaml\n").skip(1).map(|block| block.split("```").next().expect("a block"));
    let recipe = |text: &str| {
        let document = documents(text).expect("YAML").remove(0);
        let template = manifest::templates(&document).remove(0);
        let annotations = template.annotations().expect("annotations");
        let ours = manifest::pairs(annotations)
            .filter_map(|(key, value)| {
                Some((key.strip_prefix(pod_spec::PREFIX)?.to_owned(), value.to_owned()))
            })
            .collect::<Vec<_>>();
        let of = |list| {
            let containers =
                template.containers().into_iter().filter(move |container| container.list == list);
            containers.map(|container| container.name.to_owned()).collect()
        };
        let proxy = INJECTED_INITS.iter().map(|(proxy, _)| *proxy);
        let proxy = proxy.clone().find(|proxy| text.contains(&format!("{proxy}=sidecar"))).expect("a proxy");
        Recipe {
            text: text.to_owned(),
            annotations: ours,
            policy: template.restart_policy().to_lowercase(),
            inits: of(List::Init),
            mains: of(List::Regular),
            proxy,
        }
    };
    blocks.map(recipe).collect()
}

impl Recipe {
    /// All init containers, those of the injector first.
    fn all_inits(&self) -> Vec<String> {
        let (_, injected) = INJECTED_INITS.iter().find(|(proxy, _)| *proxy == self.proxy).expect("its inits");
        injected.iter().map(|name| (*name).to_owned()).chain(self.inits.clone()).collect()
    }

    fn scenario(&self, caller: &str) -> String {
        let mut text = "pod\n".to_owned();
        for (key, value) in &self.annotations {
            text += &format!("  {key}: {value}\n");
        }
        for init in self.all_inits() {
            text += &format!("program {init}: exit=0@1s\n");
        }
        let main = if self.policy == "always" { "term=0@3s" } else { "exit=0@20s" };
        for name in &self.mains {
            text += &format!("program {name}: {main}\n");
        }
        text + &format!("program {}: term=7@1s ready=2s\n{caller}", self.proxy)
    }

    /// A kubelet's calls without any word of what its containers are: one init after another, then the others at once.
    fn calls(&self) -> String {
        let inits: String =
            self.all_inits().iter().map(|init| format!("up {init}\nadvance 1500ms\n")).collect();
        let stop = if self.policy == "always" {
            let all = self.mains.iter().map(String::as_str).chain([self.proxy]);
            all.map(|name| format!("stop-container {name} 30s\n")).collect()
        } else {
            String::new()
        };
        format!("{inits}up {} {}\nadvance 40s\n{stop}idle\n", self.mains.join(" "), self.proxy)
    }

    /// The kubelet of the simulator, which knows native sidecars.
    fn aware(&self) -> String {
        let inits: String = self.all_inits().iter().map(|init| format!(" {init}/init")).collect();
        let mains = self.mains.join(" ");
        let delete = if self.policy == "always" { "fault delete 30s\n" } else { "" };
        format!(
            "kubelet aware {}{inits} {mains} {}\nadvance 60s\n{delete}settle 10m\n",
            self.policy, self.proxy
        )
    }
}

fn play(scenario: &str) -> Vec<String> {
    let mut simulator = Simulator::default();
    let parsed = Scenario::parse(scenario.lines()).unwrap_or_else(|error| panic!("{error}\n{scenario}"));
    simulator.run(&parsed).unwrap_or_else(|error| panic!("{error}\n{scenario}"));
    simulator.take_trace()
}

/// When something happened, of a container or of its first task.
fn time_of(trace: &[String], name: &str, what: &str) -> Option<f64> {
    let names = [format!("{name}.{what}"), format!("{name}-1.{what}")];
    let is_it = |line: &&String| {
        line.split_once(' ').is_some_and(|(_, rest)| names.iter().any(|name| rest.starts_with(name.as_str())))
    };
    trace.iter().find(is_it)?.split(' ').next()?.parse().ok()
}

fn check_trace(recipe: &Recipe, scenario: &str) {
    let trace = play(scenario);
    let shown = format!("{scenario}----\n{}", trace.join("\n"));
    let time = |name: &str, what: &str| {
        time_of(&trace, name, what).unwrap_or_else(|| panic!("no {name}.{what}\n{shown}"))
    };
    let mut last = 0.0;
    for init in recipe.all_inits() {
        assert!(time(&init, "start") >= last, "{init}\n{shown}");
        last = time(&init, "exit(0)");
    }
    // The proxy is ready two seconds after its start, and the mains wait for that.
    let ready = time(recipe.proxy, "start") + 1.99;
    for main in &recipe.mains {
        assert!(time(main, "start") >= ready, "{main}\n{shown}");
        assert!(time(main, "exit(0)") <= time(recipe.proxy, "TERM"), "{main}\n{shown}");
    }
    assert!(time(recipe.proxy, "exit(7)") > ready, "{shown}");
}

fn findings(recipe: &Recipe) -> Vec<Finding> {
    let source = Source { name: "recipe.yaml".to_owned(), text: recipe.text.clone() };
    check(&source, &CheckContext { injected: vec![recipe.proxy.to_owned()], ..CheckContext::default() }, None)
        .1
}

#[test]
fn s8_found_k1_the_recipes_run_under_a_kubelet_that_knows_no_sidecars() {
    let recipes = recipes();
    assert_eq!(recipes.len(), 2);
    for recipe in &recipes {
        check_trace(recipe, &recipe.scenario(&recipe.calls()));
    }
}

#[test]
fn s8_found_k1_the_recipes_run_under_a_kubelet_that_knows_sidecars() {
    for recipe in recipes() {
        check_trace(&recipe, &recipe.scenario(&recipe.aware()));
    }
}

#[test]
fn s8_found_k1_check_asks_for_what_a_recipe_must_not_lack() {
    for recipe in recipes() {
        let errors: Vec<_> =
            findings(&recipe).into_iter().filter(|it| it.severity != Severity::Note).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{}", recipe.text);
    }
    // Without its `none` the init is held, and its kubelet creates no proxy.
    let mut recipe = recipes().remove(0);
    assert_eq!(recipe.inits, ["fetch"], "the page has an init of the pod's own");
    recipe.text = recipe.text.replace("fetch=none, ", "");
    let found = findings(&recipe);
    let error = found.iter().find(|finding| finding.severity == Severity::Error).expect("an error");
    assert_eq!(error.fix.as_deref(), Some("write podshim.io/role.fetch: none"));
    for (_, value) in &mut recipe.annotations {
        *value = value.replace("fetch=none, ", "");
    }
    let trace = play(&recipe.scenario("up istio-init\nadvance 2s\nup fetch\nadvance 60s\n"));
    assert_eq!(time_of(&trace, "istio-init", "exit(0)"), Some(1.0));
    assert_eq!(time_of(&trace, "fetch", "start"), None, "{}", trace.join("\n"));
}
