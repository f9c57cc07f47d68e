//! Calls of the OCI runtime that hang while their container is to end (T10).

use std::fs;
use std::path::Path;
use std::time::Duration;

use containerd_shim_protos::shim::shim::UpdateTaskRequest;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use tokio::time::{Instant, timeout};

use super::support::{Pod, context, with_pod};

/// More than podshim waits, and far less than the runtime hangs.
const SOON: Duration = Duration::from_secs(8);

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

const PLAN: [(&str, &str); 2] = [("podshim.io/plan", "proxy=sidecar, app=main"), ("podshim.io/grace", "3s")];

fn is_alive(pid: &str) -> bool {
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}

/// A pod whose proxy is restarted in place by a runtime that hangs in that command. Returns the pid of what hangs with it.
async fn pod_whose_restart_hangs(pod: &Pod, command: &str) -> String {
    pod.run("proxy", "touch \"$0.ran\"; exec sleep 60", &PLAN).await;
    pod.run("app", "exec sleep 60", &PLAN).await;
    let bundle = pod.directory.path().join("proxy");
    until("its program has run", || bundle.join("program.sh.ran").exists()).await;
    let resources = MessageField::some(Any { value: b"{}".to_vec(), ..Any::default() });
    let update = UpdateTaskRequest { id: "proxy".to_owned(), resources, ..Default::default() };
    pod.client.update(context(), &update).await.unwrap();
    fs::write(bundle.join(format!("hang.{command}")), "").unwrap();
    let pid = pod.state("proxy").await.unwrap().pid;
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    until("its restart hangs", || bundle.join("hanging").exists()).await;
    fs::read_to_string(bundle.join("hanging")).unwrap().trim().to_owned()
}

#[test]
fn c6_t10_a_stop_does_not_wait_for_a_restart_in_place_that_hangs() {
    with_pod(async |pod| {
        let hanging = pod_whose_restart_hangs(&pod, "create").await;
        assert!(is_alive(&hanging));
        let began = Instant::now();
        pod.kill("proxy", 15).await.unwrap();
        pod.kill("app", 15).await.unwrap();
        timeout(SOON, pod.wait("app")).await.expect("app has ended").unwrap();
        timeout(SOON, pod.wait("proxy")).await.expect("proxy has ended").unwrap();
        // And neither does its delete, which comes after the runtime's end.
        timeout(SOON, pod.delete("proxy")).await.expect("proxy is deleted").unwrap();
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        assert!(!is_alive(&hanging), "the runtime is gone, with what it ran beside itself");
        pod.delete("app").await.unwrap();
    });
}

/// The runtime has made the process, and hangs while it sets the limits of the last Update.
#[test]
fn c6_t10_what_was_made_too_late_is_ended() {
    with_pod(async |pod| {
        let hanging = pod_whose_restart_hangs(&pod, "update").await;
        let bundle = pod.directory.path().join("proxy");
        let made = fs::read_to_string(bundle.join("init.pid")).unwrap().trim().to_owned();
        assert!(is_alive(&hanging) && is_alive(&made));
        pod.kill("proxy", 15).await.unwrap();
        pod.kill("app", 15).await.unwrap();
        timeout(SOON, pod.wait("proxy")).await.expect("proxy has ended").unwrap();
        timeout(SOON, pod.delete("proxy")).await.expect("proxy is deleted").unwrap();
        until("what it had made is ended", || !is_alive(&made)).await;
        assert!(!is_alive(&hanging));
        pod.wait("app").await.unwrap();
        pod.delete("app").await.unwrap();
    });
}

#[test]
fn c6_t10_a_start_that_hangs_does_not_outlive_its_process() {
    with_pod(async |pod| {
        pod.bundle("proxy", "exec sleep 60", &PLAN);
        pod.create("proxy").await.unwrap();
        fs::write(pod.directory.path().join("proxy/slow.start"), "60").unwrap();
        let (started, killed) = tokio::join!(timeout(SOON, pod.start("proxy")), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            pod.kill("proxy", 9).await
        });
        killed.unwrap();
        started.expect("the start is answered").unwrap_err();
        timeout(SOON, pod.wait("proxy")).await.expect("it has ended").unwrap();
        timeout(SOON, pod.delete("proxy")).await.expect("it is deleted").unwrap();
    });
}
