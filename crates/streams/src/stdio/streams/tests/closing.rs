//! What stays open of streams that have ended and that no caller ends (D8).

use super::*;

#[test]
fn d8_streams_that_have_been_read_are_closed_although_the_set_stays() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (stdout, stderr) = (make_fifo(directory.path(), "stdout"), make_fifo(directory.path(), "stderr"));
        let before = open_files_of_a_thread_with_streams().await;
        let readers = [&stdout, &stderr].map(|path| open_reader(path));
        let mut stdio = open(&StdioPaths { stderr, ..output_to(&stdout) }).await;
        let child = spawn(&reaper, &mut stdio, "echo out; echo err >&2");
        within(child.exit).await;
        drop((child.process, child.report));
        stdio.finish_output();
        stdio.close_when_read();
        // A client that comes back later finds what it had not read.
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(readers);
        tokio::time::sleep(Duration::from_millis(100)).await;
        for (path, text) in
            [(&stdout, "out\n"), (&directory.path().join("stderr").display().to_string(), "err\n")]
        {
            assert_eq!(read_to_end(&open_reader(path)).await, text);
        }
        until(|| open_files() <= before).await;
        drop(stdio);
    });
}
