//! containerd's fifos (CONTRACT §7): what their readers see of creates that fail.

use std::fs;
use std::io::Read;
use std::path::Path;

use containerd_shim_protos::shim::shim::*;
use nix::sys::stat::Mode;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::support::{CALL_LIMIT, context, refusal, with_pod};

/// Reads a new fifo to its end, as containerd does: opened once, with a thread of its own.
fn reader(path: &Path) -> oneshot::Receiver<String> {
    nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
    let (sender, receiver) = oneshot::channel();
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut text = String::new();
        fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
        // If it fails, the test has failed already.
        let _ = sender.send(text);
    });
    receiver
}

/// podshim opens the fifos before there is a process. If a failed create closed them, their readers would go, and a second
/// create would wait 30 s for new ones.
#[test]
fn a_create_that_failed_leaves_its_fifos_to_the_next() {
    with_pod(async |pod| {
        let bundle = pod.bundle("c", "echo it runs", &[]);
        let [stdin, stdout, stderr] =
            ["stdin", "stdout", "stderr"].map(|stream| pod.directory.path().join(stream));
        nix::unistd::mkfifo(&stdin, Mode::S_IRWXU).unwrap();
        let (output, errors) = (reader(&stdout), reader(&stderr));
        let request = CreateTaskRequest {
            stdin: stdin.display().to_string(),
            stdout: stdout.display().to_string(),
            stderr: stderr.display().to_string(),
            ..pod.create_request("c")
        };
        fs::write(bundle.join("fail.create"), "no such program").unwrap();
        for _ in 0..2 {
            let (_, text) = refusal(pod.client.create(context(), &request).await);
            assert_eq!(text, "OCI runtime create failed: no such program");
        }
        fs::remove_file(bundle.join("fail.create")).unwrap();
        pod.client.create(context(), &request).await.unwrap();
        pod.start("c").await.unwrap();
        pod.wait("c").await.unwrap();
        pod.delete("c").await.unwrap();
        let output = timeout(CALL_LIMIT, output).await.expect("the end of stdout").unwrap();
        let errors = timeout(CALL_LIMIT, errors).await.expect("the end of stderr").unwrap();
        assert_eq!((output.as_str(), errors.as_str()), ("it runs\n", ""));
    });
}

/// CONTRACT §1.8: containerd deletes what it could not create, and then its readers must see the end.
#[test]
fn a_delete_ends_the_fifos_of_a_create_that_failed() {
    with_pod(async |pod| {
        let bundle = pod.bundle("c", "true", &[]);
        let stdout = pod.directory.path().join("stdout");
        let output = reader(&stdout);
        let request = CreateTaskRequest { stdout: stdout.display().to_string(), ..pod.create_request("c") };
        fs::write(bundle.join("fail.create"), "no such program").unwrap();
        refusal(pod.client.create(context(), &request).await);
        refusal(pod.delete("c").await);
        assert_eq!(timeout(CALL_LIMIT, output).await.expect("the end of stdout").unwrap(), "");
    });
}
