//! Runs the scenario files: commands, `----`, the trace they must give. Each rule has at least one file, named after
//! it.
//!
//! Owns the file format; `coverage` checks that each rule has a file. With `PODSHIM_REWRITE_SCENARIOS` set this test rewrites the
//! expectations; read each line against the rule before you keep it.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Scenario, Simulator};

/// The commands of a block and the trace they must show.
struct Block {
    commands: Vec<String>,
    expected: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).expect("the folder of scenarios");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// A block is commands up to `----` and expected lines up to an empty line.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    loop {
        let commands: Vec<String> =
            lines.by_ref().take_while(|line| *line != "----").map(String::from).collect();
        if commands.iter().all(|line| line.trim().is_empty()) {
            return blocks;
        }
        let expected = lines.by_ref().take_while(|line| !line.is_empty()).map(String::from).collect();
        blocks.push(Block { commands, expected });
    }
}

/// What the commands of a block show.
fn play(simulator: &mut Simulator, block: &Block) -> Vec<String> {
    let commands = block.commands.iter().map(String::as_str);
    let scenario =
        Scenario::parse(commands).unwrap_or_else(|error| panic!("{error}, in {:#?}", block.commands));
    let result = simulator.run(&scenario);
    let mut trace = simulator.take_trace();
    trace.extend(result.err().map(|error| format!("broken: {error}")));
    trace
}

#[test]
fn scenarios() {
    let rewrite = std::env::var_os("PODSHIM_REWRITE_SCENARIOS").is_some();
    let mut failures = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).expect("a scenario file");
        let mut simulator = Simulator::default();
        let mut written = String::new();
        for block in blocks(&text) {
            let shown = play(&mut simulator, &block);
            if shown != block.expected {
                failures.push(format!(
                    "{}:\n{}\n  expected:\n    {}\n  shown:\n    {}",
                    path.display(),
                    block.commands.join("\n"),
                    block.expected.join("\n    "),
                    shown.join("\n    ")
                ));
            }
            written += &block.commands.join("\n");
            written += "\n----\n";
            shown.iter().for_each(|line| written += &format!("{line}\n"));
            written += "\n";
        }
        if rewrite {
            fs::write(&path, written.trim_end().to_owned() + "\n").expect("a scenario file");
        }
    }
    if !rewrite {
        assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    }
}
