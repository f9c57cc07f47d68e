use test_support::run;
use tokio::net::UnixListener;

use super::*;

/// A Delete, and what is recorded of the sandbox, must not wait for it.
#[test]
fn systemd_that_does_not_answer_delays_the_end_by_seconds_only() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("private");
    run(async {
        // It accepts, as the kernel does for it, and reads nothing.
        let _listener = UnixListener::bind(&socket).unwrap();
        let begun = Instant::now();
        end_by(&socket, "cri-containerd-shop.scope").await;
        assert!(begun.elapsed() < 2 * END_LIMIT, "{:?}", begun.elapsed());
    });
}
