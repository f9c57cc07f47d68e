//! Runs the scenario files: commands, `----`, the trace they must give. Each rule has at least one file, named after
//! it.
//!
//! Owns the file format and the list of rules. With `PODSHIM_REWRITE_SCENARIOS` set this test rewrites the
//! expectations; read each line against the rule before you keep it.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Scenario, Simulator};

/// The rules of the specification that this core implements.
const RULES: &[&str] = &[
    "s01", "s02", "s03", "s04", "s05", "s06", "s07", "s08", "s09", "i01", "i02", "i03", "i04", "i05", "i06",
    "i07", "i08", "u01", "u02", "u03", "u04", "u05", "u06", "u07", "u08", "u10", "u11", "u13", "r01", "r02",
    "r03", "r04", "r05", "r06", "r07", "r08", "r09", "r12", "t01", "t02", "t03", "t04", "t05", "t06", "t07",
    "t08", "t09", "t10", "t11", "t12", "t13", "t14", "t15", "t16", "t17", "k01", "k02", "k03", "k04", "k05",
    "k06", "k07", "k08", "k09", "k10", "k11", "k12", "k13", "k14", "k15", "k16", "k17", "j01", "j02", "j03",
    "j05", "j06", "j07", "j09", "j10", "j11", "h01", "h02", "h03", "h04", "h06", "n08", "v01", "v02", "v03",
    "v04", "v05", "v06",
];

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

/// A rule without a scenario is a rule that has not been thought through.
#[test]
fn every_rule_has_a_scenario() {
    let names: Vec<String> =
        files().iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    let missing: Vec<_> =
        RULES.iter().filter(|rule| !names.iter().any(|name| name.starts_with(&format!("{rule}_")))).collect();
    assert!(missing.is_empty(), "no scenario for {missing:?}");
}
