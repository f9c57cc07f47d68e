//! Each writer of a stream begins on a line of its own (D3, R6).

use super::*;

/// Both streams of a container, with containerd's readers.
struct Both {
    out: File,
    err: File,
    stdio: Stdio,
    reaper: Reaper,
    _directory: tempfile::TempDir,
}

impl Both {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (stdout, stderr) = (make_fifo(directory.path(), "stdout"), make_fifo(directory.path(), "stderr"));
        let [out, err] = [&stdout, &stderr].map(|path| open_reader(path));
        let stdio = open(&StdioPaths { stderr, ..output_to(&stdout) }).await;
        Self { out, err, stdio, reaper: Reaper::start().unwrap(), _directory: directory }
    }

    async fn incarnation(&mut self, script: &str) {
        assert_eq!(within(spawn(&self.reaper, &mut self.stdio, script).exit).await.code, 0);
    }

    /// A hook, to the end of its output.
    async fn beside(&mut self, script: &str) {
        let Attempt { child, mut held_back } = self.stdio.attempt_beside().unwrap();
        let child = self.reaper.spawn(&mut shell(child, script)).unwrap();
        held_back.begin();
        within(child.exit).await;
        held_back.end_by(Instant::now() + READER_LIMIT).await;
    }

    async fn expect_end(mut self, out: &str, err: &str) {
        self.stdio.finish_output();
        assert_eq!(read_to_end(&self.out).await, out);
        assert_eq!(read_to_end(&self.err).await, err);
    }
}

#[test]
fn d3_r6_an_incarnation_begins_on_a_new_line() {
    run(async {
        let mut streams = Both::new().await;
        for _ in 0..2 {
            streams.incarnation("printf half; printf error >&2").await;
        }
        streams.incarnation("echo whole; echo error >&2").await;
        streams.incarnation("echo last; echo last >&2").await;
        streams.expect_end("half\nhalf\nwhole\nlast\n", "error\nerror\nerror\nlast\n").await;
    });
}

/// One that writes nothing makes no empty lines, and nothing is added behind what a program wrote last.
#[test]
fn d3_r6_nothing_else_is_added() {
    run(async {
        let mut streams = Both::new().await;
        streams.incarnation("true").await;
        streams.incarnation("echo one").await;
        streams.beside("true").await;
        streams.incarnation("printf two; printf err >&2").await;
        streams.expect_end("one\ntwo", "err").await;
    });
}

#[test]
fn d3_podshims_own_line_begins_on_a_new_line() {
    run(async {
        let mut streams = Both::new().await;
        streams.incarnation("printf half >&2").await;
        let mut seen = String::new();
        until(|| {
            seen += &read_available(&streams.err);
            seen == "half"
        })
        .await;
        streams.stdio.write_line("one");
        streams.stdio.write_line("two");
        streams.incarnation("echo next >&2").await;
        streams.expect_end("", "\npodshim: one\npodshim: two\nnext\n").await;
    });
}

#[test]
fn d3_a_hooks_output_begins_and_ends_on_lines_of_its_own() {
    run(async {
        let mut streams = Both::new().await;
        let go_on = tempfile::tempdir().unwrap();
        let fifo = make_fifo(go_on.path(), "go-on");
        let script = format!("printf half; printf error >&2; read word < {fifo}; echo rest; echo rest >&2");
        let program = spawn(&streams.reaper, &mut streams.stdio, &script);
        let (mut out, mut err) = (String::new(), String::new());
        until(|| {
            out += &read_available(&streams.out);
            err += &read_available(&streams.err);
            (&*out, &*err) == ("half", "error")
        })
        .await;
        streams.beside("printf hook; printf hook >&2").await;
        std::fs::write(&fifo, "go\n").unwrap();
        within(program.exit).await;
        streams.expect_end("\nhook\nrest\n", "\nhook\nrest\n").await;
    });
}

/// The program writes to the same pipe, before the hook has ended.
#[test]
fn d3_a_program_does_not_write_the_rest_of_a_hooks_line() {
    run(async {
        let streams = Both::new().await;
        let Attempt { child, mut held_back } = streams.stdio.attempt_beside().unwrap();
        held_back.begin();
        let [out, err] = [child.stdout, child.stderr].map(|end| File::from(end.into_inner().unwrap()));
        (&out).write_all(b"whole\nhook").unwrap();
        (&err).write_all(&[b'x'; 5000]).unwrap();
        let mut seen = String::new();
        until(|| {
            seen += &read_available(&streams.out);
            seen == "whole\n"
        })
        .await;
        let program = reopen(streams.stdio.stdout.as_ref().unwrap().process_end().unwrap()).unwrap();
        (&program).write_all(b"program\n").unwrap();
        drop((out, err, program));
        held_back.end_by(Instant::now() + READER_LIMIT).await;
        streams.expect_end("program\nhook\n", &format!("{}\n", "x".repeat(5000))).await;
    });
}

/// A process that the hook leaves behind keeps its streams: what they have is moved where they are cut.
#[test]
fn d3_a_cut_loses_no_half_line() {
    run(async {
        let streams = Both::new().await;
        let Attempt { child, mut held_back } = streams.stdio.attempt_beside().unwrap();
        held_back.begin();
        let out = File::from(child.stdout.into_inner().unwrap());
        (&out).write_all(b"one\ntwo").unwrap();
        held_back.end_by(Instant::now() + SHORT).await;
        streams.expect_end("one\ntwo\n", "").await;
        drop(out);
    });
}

#[test]
fn d3_a_hook_that_writes_nothing_does_not_cut_the_programs_line_in_two() {
    run(async {
        let mut streams = Both::new().await;
        let go_on = tempfile::tempdir().unwrap();
        let fifo = make_fifo(go_on.path(), "go-on");
        let script = format!("printf half; printf half >&2; read word < {fifo}; echo -way; echo -way >&2");
        let program = spawn(&streams.reaper, &mut streams.stdio, &script);
        let mut err = String::new();
        until(|| {
            err += &read_available(&streams.err);
            err == "half"
        })
        .await;
        streams.beside("true").await;
        std::fs::write(&fifo, "go\n").unwrap();
        within(program.exit).await;
        streams.expect_end("half-way\n", "-way\n").await;
    });
}

/// The line is ended where the earlier output ends, although all of that is still on its way: containerd reads nothing yet.
#[test]
fn d3_a_line_is_ended_where_it_ends_and_no_byte_is_lost() {
    run(async {
        let mut streams = Both::new().await;
        let long = 100_000;
        streams.incarnation(&format!("head -c {long} /dev/zero | tr '\\0' x")).await;
        streams.incarnation("echo second").await;
        let expected = format!("{}\nsecond\n", "x".repeat(long));
        streams.expect_end(&expected, "").await;
    });
}

/// The process writes to a file itself, with both streams.
#[test]
fn d3_r6_in_a_file_too_everything_begins_on_a_new_line() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let address = format!("file://{}", path.display());
        let stdio = open(&StdioPaths { stderr: address.clone(), ..output_to(&address) }).await;
        let [out, err] = [(); 2].map(|()| File::open("/dev/null").unwrap());
        let mut streams = Both { out, err, stdio, reaper: Reaper::start().unwrap(), _directory: directory };
        streams.incarnation("printf half").await;
        streams.stdio.write_line("held");
        streams.incarnation("printf second >&2").await;
        streams.beside("printf hook").await;
        streams.incarnation("echo third").await;
        assert_eq!(std::fs::read_to_string(path).unwrap(), "half\npodshim: held\nsecond\nhook\nthird\n");
    });
}
