//! Containers that flood a gate with output or messages (DESIGN §6): the pod's one thread still serves all others.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::types::task::Status;
use nix::time::{ClockId, clock_gettime};
use tokio::time::{sleep, timeout};

use crate::support::{Pod, with_pod};

/// How long containerd waits for a State.
const STATE_LIMIT: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);
/// How many requests are made during a flood.
const REQUESTS: usize = 100;

const NAME: &str = "io.kubernetes.cri.container-name";

/// Work that goes on beside a test until this is dropped, and is counted.
struct Beside {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Beside {
    /// `work` returns how much it did; it goes on after an error.
    fn begin(mut work: impl FnMut() -> std::io::Result<usize> + Send + 'static) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let beside = Self { stop: stop.clone(), count: count.clone() };
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match work() {
                    Ok(0) | Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    Ok(more) => drop(count.fetch_add(more as u64, Ordering::Relaxed)),
                }
            }
        });
        beside
    }

    async fn wait_for(&self, count: u64) {
        let more = async {
            while self.count.load(Ordering::Relaxed) < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, more).await.expect("nothing comes through");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A fifo with a reader that reads all there is, as containerd's side does.
fn read_fifo(path: &Path) -> Beside {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = fs::File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).unwrap();
    let mut buffer = vec![0; 1 << 16];
    Beside::begin(move || reader.read(&mut buffer))
}

/// Creates and starts a container whose streams are such fifos.
async fn run_with_streams(pod: &Pod, id: &str, program: &str, annotations: &[(&str, &str)]) -> [Beside; 2] {
    let bundle = pod.bundle(id, program, annotations);
    let paths = ["stdout", "stderr"].map(|name| bundle.join(name));
    let readers = paths.each_ref().map(|path| read_fifo(path));
    let [stdout, stderr] = paths.map(|path| path.display().to_string());
    let request = CreateTaskRequest { stdout, stderr, ..pod.create_request(id) };
    pod.client.create(crate::support::context(), &request).await.unwrap();
    pod.start(id).await.unwrap();
    readers
}

async fn ensure_answered(pod: &Pod, ids: &[&str]) {
    for _ in 0..REQUESTS {
        for id in ids {
            let state = timeout(STATE_LIMIT, pod.state(id)).await.expect("State waited").unwrap();
            assert_eq!(state.status.enum_value(), Ok(Status::RUNNING), "{id}");
        }
    }
}

/// One container writes lines without a break and, on its other stream, a line without an end; its gate searches both. The
/// gate of another container opens with its line, requests are answered, and the flooding container can be ended.
#[test]
fn u2_a_flood_of_one_log_delays_no_other_gate_and_no_answer() {
    with_pod(async |pod| {
        let annotations = |name: &'static str| {
            [
                (NAME, name),
                ("podshim.io/plan", "flood+calm=sidecar, app=main"),
                ("podshim.io/after.app", "calm=ready"),
                ("podshim.io/ready.flood", "log:^(x|y)+never$;fail=100000"),
                ("podshim.io/ready.calm", "log:^up$;fail=100000"),
            ]
        };
        let (go, ran) = (pod.directory.path().join("go"), pod.directory.path().join("ran"));
        let flood = "tr '\\0' x </dev/zero >&2 & exec yes xyxyxyxyxyxy";
        let [lines, one_line] = run_with_streams(&pod, "flood", flood, &annotations("flood")).await;
        let calm = format!("until [ -e {} ]; do sleep 0.05; done; echo up; exec sleep 60", go.display());
        let _calm = run_with_streams(&pod, "calm", &calm, &annotations("calm")).await;
        pod.run("app", &format!("touch {}; exec sleep 60", ran.display()), &annotations("app")).await;
        // More than all buffers on the way hold.
        lines.wait_for(8 << 20).await;
        one_line.wait_for(8 << 20).await;
        ensure_answered(&pod, &["flood", "calm", "app"]).await;
        assert!(!ran.exists());
        fs::write(&go, "").unwrap();
        timeout(SOON, async {
            while !ran.exists() {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("calm's gate opens");
        let passed = lines.count.load(Ordering::Relaxed);
        lines.wait_for(passed + (1 << 20)).await;
        for id in ["app", "calm", "flood"] {
            timeout(SOON, pod.kill(id, 9)).await.expect("the kill waited").unwrap();
            timeout(SOON, pod.wait(id)).await.expect("it goes on").unwrap();
        }
    });
}

/// Runs `s1`, whose gate is `notify`, and sends messages to its socket without a break, from three threads.
async fn flooded_with_messages(pod: &Pod) -> [Beside; 3] {
    let annotations = [
        (NAME, "s1"),
        ("podshim.io/plan", "s1=sidecar, app=main"),
        ("podshim.io/ready.s1", "notify;fail=100000"),
    ];
    let bundle = pod.bundle("s1", "exec sleep 60", &annotations);
    let spec = fs::read_to_string(bundle.join("config.json")).unwrap();
    let mut spec: serde_json::Value = serde_json::from_str(&spec).unwrap();
    spec["mounts"] = serde_json::json!([{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}]);
    fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
    pod.create("s1").await.unwrap();
    pod.start("s1").await.unwrap();
    let flood = [(); 3].map(|()| {
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(bundle.join("notify.sock")).unwrap();
        // A sender that blocks must not keep the test from its end.
        socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        // For a message with an effect, podshim looks up the sender's cgroup.
        Beside::begin(move || socket.send(b"STATUS=busy"))
    });
    for sender in &flood {
        sender.wait_for(1 << 10).await;
    }
    flood
}

/// Messages without a break on the socket of a `notify` gate.
#[test]
fn u2_a_flood_of_messages_delays_no_answer() {
    with_pod(async |pod| {
        let _flood = flooded_with_messages(&pod).await;
        ensure_answered(&pod, &["s1"]).await;
    });
}

/// H5: each of them cost the shim's thread half a millisecond of a processor, outside of the pod's cgroup.
#[test]
fn h5_a_flood_of_messages_takes_none_of_the_shims_thread() {
    with_pod(async |pod| {
        let _flood = flooded_with_messages(&pod).await;
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let before = used();
        sleep(Duration::from_secs(3)).await;
        let taken = used() - before;
        println!("{taken:?} of the shim's thread in 3 s");
        assert!(taken < Duration::from_millis(60), "{taken:?}");
    });
}

/// A log gate opens with its line and with no other one, whichever stream has it.
#[test]
fn u2_a_log_gate_opens_with_its_own_line_only() {
    for stream in [1, 2] {
        with_pod(async |pod| {
            let annotations = |name| {
                [
                    (NAME, name),
                    ("podshim.io/plan", "proxy=sidecar, app=main"),
                    ("podshim.io/ready.proxy", "log:^up$;fail=100000"),
                ]
            };
            let (go, ran) = (pod.directory.path().join("go"), pod.directory.path().join("ran"));
            let program = format!(
                "echo starting; echo not up >&2; until [ -e {} ]; do sleep 0.05; done; echo up >&{stream}; exec sleep 60",
                go.display()
            );
            let [lines, errors] = run_with_streams(&pod, "proxy", &program, &annotations("proxy")).await;
            pod.run("app", &format!("touch {}; exec sleep 60", ran.display()), &annotations("app")).await;
            lines.wait_for(9).await;
            errors.wait_for(7).await;
            sleep(Duration::from_secs(1)).await;
            assert!(!ran.exists(), "no line of these opens it");
            fs::write(&go, "").unwrap();
            let opened = async {
                while !ran.exists() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(SOON, opened).await.expect("its line opens it");
        });
    }
}
