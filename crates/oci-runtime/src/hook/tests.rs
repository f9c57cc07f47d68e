//! Hooks in a real container whose output is read.

use processes::SignalNumber;
use streams::head::{Hands, Streams, Whose};
use streams::stdio::{StdioPaths, StreamOwner};
use test_support::{make_fifo, open_reader, read_available, read_to_end, run as run_test, until, within};

use super::*;
use crate::runtime::CreateOptions;
use crate::test_container::TestContainer;

/// H1 to H4: output, result, and the hook's end with the container.
#[test]
fn h3_h4_a_hook_writes_to_the_containers_log_and_ends_with_it() {
    run_test(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let paths = ["stdout", "stderr"].map(|name| make_fifo(test.directory.path(), name));
        let [stdout, stderr] = paths.each_ref().map(|path| open_reader(path));
        let [stdout_path, stderr_path] = paths;
        let paths = StdioPaths { stdout: stdout_path, stderr: stderr_path, ..StdioPaths::default() };
        let mut stdio =
            Streams::open(&Hands::new(Vec::new()), Whose::Container("c"), &paths, StreamOwner::default())
                .await
                .unwrap();
        within(stdio.connect()).await.unwrap();
        let Attempt { child, held_back } = stdio.attempt().ready().await.unwrap();
        let created = test.container.create(child, CreateOptions::default()).await.unwrap();
        stdio.accept(held_back);
        test.container.start().await.unwrap();
        let init = created.process.pid();
        let attempt = async |script: &str| {
            let streams = stdio.attempt_beside();
            run(&test.container, &test.beside(init, &["sh", "-c", script]), streams).await
        };
        within(attempt("echo one; echo two >&2")).await.unwrap();
        // A process that it left behind does not delay its end.
        within(attempt("sleep 1000 & cat")).await.unwrap();
        assert_eq!(within(attempt("exit 3")).await.unwrap_err().to_string(), "exit status 3");
        let streams = stdio.attempt_beside();
        let program = test.beside(init, &["no-such-program"]);
        let missing = within(run(&test.container, &program, streams)).await.unwrap_err().to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
        let mut errors = String::new();
        let (ended, ()) = tokio::join!(attempt("echo three >&2; exec sleep 1000"), async {
            // Kill the container only when the hook runs; otherwise the runtime would only report that the container
            // has stopped.
            until(|| {
                errors += &read_available(&stderr);
                errors.ends_with("three\n")
            })
            .await;
            created.process.signal(SignalNumber::KILL).unwrap();
        });
        assert_eq!(ended.unwrap_err().to_string(), "killed by signal 9");
        within(created.exit).await;
        stdio.drain(DRAIN_LIMIT).await;
        assert_eq!(read_to_end(&stdout).await, "one\n");
        assert_eq!(errors + &read_to_end(&stderr).await, "two\nthree\n");
    });
}
