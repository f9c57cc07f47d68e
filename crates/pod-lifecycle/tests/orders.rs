//! A caller's stops of one pod in one instant: whatever their order, the same programs run, and end at the same time (T12, T16).
//!
//! Owns the pods and what is compared. The kubelet's order is random, and no rule may depend on it.

use testkit::{Scenario, Simulator};

/// Pods whose containers are all stopped at once; the last line of each says when, and names them.
const PODS: [&str; 7] = [
    // C3: the proxy is backing off.
    "pod cleanup\n  plan: proxy=sidecar, app=main\nprogram proxy: exit=1@1s | exit=1@1s | exit=1@900s\n\
     program app: term=0@8s\n2500ms: proxy app",
    "pod cleanup\n  plan: proxy=sidecar, app=main\n  restart-policy: Never\nprogram proxy: exit=1@1s | exit=1@900s\n\
     slow proxy recreate 1s\nprogram app: term=0@8s\n1500ms: proxy app",
    // C2: an init runs, and what it holds has never run.
    "pod cleanup\n  plan: a0=init, n1=sidecar, g3=main\n  on-terminate.a0: exec:bye\nprogram a0: exit=0@60s term=0@1s\n\
     5s: a0 n1 g3",
    "pod cleanup\n  plan: s0=sidecar, a+b=init, s1=sidecar, m=main\n  restart-policy: OnFailure\nprogram a: exit=0@1s\n\
     program b: exit=0@60s term=0@1s\n5s: a b s0 s1 m",
    // Two sidecars with hooks, two mains.
    "pod cleanup\n  plan: s0=sidecar, s1=sidecar, m=main, n=main\n  on-terminate.s0: exec:bye\n  pre-stop.s1: exec:bye\n\
     program s0/on-terminate: exit=0@2s\nprogram s1/pre-stop: exit=0@1s\nprogram m: term=137@4s\nprogram n: term=0@2s\n\
     5s: s0 s1 m n",
    "pod cleanup\n  plan: i=init, s0=sidecar, s1=sidecar, m=main\n  after.s1: m=started\n  exit-codes: real\n\
     program i: exit=0@1s\nprogram s0: exit=3@1s\nprogram m: term=7@3s\n3500ms: i s0 s1 m",
    "pod cleanup\n  plan: x|y=sidecar, s1=sidecar, m=main\n  restart-policy: OnFailure\nprogram m: term=0@3s\n\
     program s1: exit=0@1s\n3200ms: x y s1 m",
];

fn permutations(names: &[String]) -> Vec<Vec<String>> {
    if names.len() < 2 {
        return vec![names.to_vec()];
    }
    let mut all = Vec::new();
    for (place, first) in names.iter().enumerate() {
        let mut rest = names.to_vec();
        rest.remove(place);
        for mut order in permutations(&rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}

/// What programs did from the stop on, in an order of its own. What callers are answered is not the same: of a container that
/// is stopped before the pod's stop is known podshim shows its real code.
fn lives(pod: &str, order: &[String]) -> Vec<String> {
    let (setup, end) = pod.rsplit_once('\n').expect("a last line");
    let (when, _) = end.split_once(": ").expect("a time");
    let mut text = setup.to_owned() + "\n";
    let mut names: Vec<_> = order.to_vec();
    names.sort();
    for name in &names {
        text += &format!("create {name} kubelet\nstart {name}\n");
    }
    text += &format!("advance {when}\n");
    for name in order {
        text += &format!("stop-container {name} 10s\n");
    }
    text += "advance 60s\n";
    let mut simulator = Simulator::default();
    let scenario = Scenario::parse(text.lines()).expect("a scenario");
    simulator.run(&scenario).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    let is_of_a_program = |line: &&String| {
        let what = line.split_whitespace().nth(1).unwrap_or_default();
        what.contains('.') && !what.starts_with("kill")
    };
    let mut trace: Vec<_> = simulator.take_trace().iter().filter(is_of_a_program).cloned().collect();
    trace.sort();
    trace
}

#[test]
fn c3_t12_t16_the_order_of_stops_in_one_instant_changes_nothing() {
    for pod in PODS {
        let (_, end) = pod.rsplit_once('\n').expect("a last line");
        let names: Vec<_> = end.split_whitespace().skip(1).map(str::to_owned).collect();
        let first = lives(pod, &names);
        assert!(first.len() > names.len(), "programs ran: {first:?}");
        for order in permutations(&names) {
            assert_eq!(first, lives(pod, &order), "{pod}\nstopped in the order {order:?}");
        }
    }
}
