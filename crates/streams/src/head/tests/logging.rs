//! `binary://` logging (CONTRACT §7): how the program is called, when it is ready, how it ends. Shell scripts play it.

use std::path::{Path, PathBuf};

use super::*;
use crate::stdio::LoggerError;

const IDENTITY: LoggerIdentity<'_> = LoggerIdentity { id: "c1", namespace: "ns" };

/// Copies fd 3 and 4 into files, marked, until both have ended.
const COPY: &str = "exec 5>&-
(while read -r line <&3; do echo \"$line\"; done) >out &
(while read -r line <&4; do echo \"$line\"; done) >err &
wait; touch ended";

struct Logged {
    directory: tempfile::TempDir,
    reaper: Reaper,
}

impl Logged {
    /// `script` runs in the test's directory.
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("logger");
        let script = format!("#!/bin/sh\ncd {}\n{script}\n", directory.path().display());
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self { directory, reaper: Reaper::start().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    async fn start(&self, scheme: &str, query: &str) -> Result<Streams, StdioError> {
        let program = self.path("logger");
        let mut streams = open(&output_to(&format!("{scheme}://{}{query}", program.display()))).await?;
        streams.start_logger(&self.reaper, IDENTITY).await?;
        Ok(streams)
    }
}

fn has_children() -> bool {
    let path = format!("/proc/self/task/{}/children", nix::unistd::gettid());
    !std::fs::read_to_string(Path::new(&path)).unwrap().trim().is_empty()
}

#[test]
fn the_program_gets_its_arguments_two_variables_and_three_descriptors() {
    run(async {
        let script = "printf '<%s>' \"$@\" >arguments
            tr '\\0' '\\n' </proc/$$/environ | sort >environment
            ls /proc/$$/fd >descriptors; readlink /proc/$$/fd/0 >stdin; exec 5>&-; cat <&3 >out";
        let logged = Logged::new(script);
        // What any child of this test inherits, including the script itself.
        let inherited = {
            let mut command = Command::new(logged.path("logger"));
            command.stderr(std::process::Stdio::null());
            within(logged.reaper.spawn(&mut command).unwrap().exit).await;
            logged.read("descriptors")
        };
        let mut streams = logged.start("binary", "?driver=json+file&-v&driver=other").await.unwrap();
        assert_eq!(logged.read("arguments"), "<driver><json file><-v><>");
        assert_eq!(logged.read("environment"), "CONTAINER_ID=c1\nCONTAINER_NAMESPACE=ns\n");
        assert_eq!(logged.read("stdin"), "/dev/null\n");
        let descriptors = logged.read("descriptors");
        let own: Vec<_> =
            descriptors.lines().filter(|fd| !inherited.lines().any(|other| other == *fd)).collect();
        assert_eq!(own, ["3", "4", "5"]);
        within(streams.drain(Duration::from_millis(30))).await;
    });
}

#[test]
fn r6_one_program_takes_the_output_of_all_incarnations_and_ends_with_the_last() {
    run(async {
        let logged = Logged::new(COPY);
        let mut streams = logged.start("binary", "").await.unwrap();
        for word in ["one", "two"] {
            let script = format!("echo {word}; echo {word}-error >&2");
            let child = spawn(&logged.reaper, &streams, &script).await;
            assert_eq!(within(child.exit).await.code, 0);
        }
        streams.write_line("held");
        assert!(!logged.path("ended").exists());
        within(streams.drain(Duration::from_secs(10))).await;
        assert_eq!(logged.read("out"), "one\ntwo\n");
        let mut errors: Vec<_> = logged.read("err").lines().map(str::to_owned).collect();
        errors.sort();
        assert_eq!(errors, ["one-error", "podshim: held", "two-error"]);
        assert!(logged.path("ended").exists());
        assert!(!has_children());
    });
}

/// The runtime has the container's stderr until it has succeeded, and the program would read it at once.
#[test]
fn what_a_failed_attempt_wrote_does_not_reach_the_program() {
    run(async {
        let logged = Logged::new(COPY);
        let mut streams = logged.start("binary", "").await.unwrap();
        let Attempt { child, held_back } = streams.attempt().ready().await.unwrap();
        let failing = logged.reaper.spawn(&mut shell(child, "echo from the runtime >&2; exit 1")).unwrap();
        assert_eq!(within(failing.exit).await.code, 1);
        drop(held_back);
        within(spawn(&logged.reaper, &streams, "echo from the container >&2").await.exit).await;
        within(streams.drain(Duration::from_secs(10))).await;
        assert_eq!(logged.read("err"), "from the container\n");
    });
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let paths = output_to("binary:///no/such/program?k=v");
        let mut streams = open(&paths).await.unwrap();
        let error = streams.start_logger(&reaper, IDENTITY).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot run logging program /no/such/program: No such file or directory (os error 2)"
        );
        let error = open(&output_to("binary://no-path")).await.unwrap_err();
        assert!(matches!(error, StdioError::Address { .. }), "{error}");
    });
}

/// For `binary`, containerd's shim takes an early end for readiness; `binary-v2` was made to tell the two apart.
#[test]
fn only_binary_v2_asks_for_a_word() {
    run(async {
        let logged = Logged::new("exit 3");
        logged.start("binary", "").await.unwrap();
        let error = logged.start("binary-v2", "").await.unwrap_err();
        assert!(matches!(error, StdioError::Logger(LoggerError::NotReady { .. })), "{error}");
        let logged = Logged::new("printf x >&5; exec 5>&-; cat <&3");
        logged.start("binary-v2", "").await.unwrap();
        until(|| !has_children()).await;
    });
}

#[test]
fn a_program_that_does_not_end_with_its_input_gets_sigterm_and_then_sigkill() {
    run(async {
        let logged = Logged::new("trap 'touch term; exit 0' TERM; exec 5>&-; while :; do sleep 0.01; done");
        let mut streams = logged.start("binary", "").await.unwrap();
        within(streams.drain(Duration::from_secs(10))).await;
        assert!(logged.path("term").exists() && !has_children());

        let logged = Logged::new("trap 'touch term' TERM; exec 5>&-; while :; do sleep 0.01; done");
        let mut streams = logged.start("binary", "").await.unwrap();
        within(streams.drain(Duration::from_secs(2))).await;
        assert!(logged.path("term").exists() && !has_children());
    });
}

/// Trap 11: a process that holds the stream delays neither the delete nor the program's end.
#[test]
fn a_background_process_that_holds_the_stream_does_not_keep_the_program() {
    run(async {
        let logged = Logged::new("exec 5>&-; cat <&3 >out");
        let mut streams = logged.start("binary", "").await.unwrap();
        let background = streams.attempt().ready().await.unwrap().child;
        within(spawn(&logged.reaper, &streams, "echo done").await.exit).await;
        let begun = Instant::now();
        within(streams.drain(Duration::from_secs(10))).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(logged.read("out"), "done\n");
        assert!(!has_children());
        drop(background);
    });
}

#[test]
fn streams_that_are_dropped_take_their_program_along() {
    run(async {
        let logged = Logged::new("trap '' TERM; exec 5>&-; while :; do sleep 0.01; done");
        drop(logged.start("binary", "").await.unwrap());
        until(|| !has_children()).await;
    });
}

/// With a terminal the console writes to the program's first input.
#[test]
fn a_terminals_output_goes_to_the_program_too() {
    run(async {
        let logged = Logged::new(COPY);
        let address = format!("binary://{}", logged.path("logger").display());
        let paths = StdioPaths { mode: StreamMode::Terminal, ..output_to(&address) };
        let mut streams = open(&paths).await.unwrap();
        streams.start_logger(&logged.reaper, IDENTITY).await.unwrap();
        streams.stdio.tell(|stdio| {
            let mut stdout = stdio.console_streams().unwrap().stdout.unwrap();
            stdout.write_all(b"typed\n").unwrap();
        });
        within(streams.drain(Duration::from_secs(10))).await;
        assert_eq!(logged.read("out"), "typed\n");
    });
}
