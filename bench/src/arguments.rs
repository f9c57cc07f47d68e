//! The command line: what is measured and how the figures are printed. `hack/bench` has the help text.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;

use crate::measure::Question;
use crate::rounds::Effort;

/// How the figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Table,
    Json,
}

/// The command line.
#[derive(Debug)]
pub struct Arguments {
    /// The directory of an instance of `hack/containerd-up`.
    pub directory: PathBuf,
    pub questions: Vec<Question>,
    pub effort: Effort,
    pub format: Format,
    /// The SVG file in which to draw the figures.
    pub chart: Option<PathBuf>,
}

impl Arguments {
    /// Reads the command line: `DIR QUESTION... [--quick] [--json] [--svg FILE]`; `--check` instead of a directory only
    /// checks the other arguments; the result is `None`.
    pub fn of_command_line() -> Result<Option<Self>> {
        Self::parse(lexopt::Parser::from_env())
    }

    fn parse(mut parser: lexopt::Parser) -> Result<Option<Self>> {
        let (mut directory, mut questions, mut chart) = (None, Vec::new(), None);
        let (mut effort, mut format) = (Effort::Full, Format::Table);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("quick") => effort = Effort::Quick,
                Long("check") if directory.is_none() => directory = Some(None),
                Long("json") => format = Format::Json,
                Long("svg") => chart = Some(PathBuf::from(parser.value()?)),
                Value(value) if directory.is_none() => directory = Some(Some(PathBuf::from(value))),
                Value(value) if value == "all" => questions.extend(Question::ALL),
                Value(value) => questions.push(question(&value.string()?)?),
                other => return Err(other.unexpected().into()),
            }
        }
        let directory = directory.context("the directory of an instance is missing (see hack/bench -h)")?;
        if questions.is_empty() {
            bail!("name what to measure: {}", names());
        }
        Ok(directory.map(|directory| Self { directory, questions, effort, format, chart }))
    }
}

fn question(name: &str) -> Result<Question> {
    let known = Question::ALL.into_iter().find(|question| question.name() == name);
    known.with_context(|| format!("unknown measurement: {name}; the known ones: {}", names()))
}

fn names() -> String {
    let names: Vec<&str> = Question::ALL.iter().map(|question| question.name()).collect();
    format!("{}, all", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Arguments>> {
        Arguments::parse(lexopt::Parser::from_args(words))
    }

    #[test]
    fn an_unknown_measurement_is_answered_with_those_there_are() {
        let error = parse(&["/tmp/x", "speed"]).expect_err("no such question");
        assert!(error.to_string().contains("memory"), "{error}");
        assert!(parse(&["--check"]).is_err());
        assert!(parse(&["--check", "memory"]).expect("good").is_none());
    }

    #[test]
    fn all_is_every_measurement() {
        let arguments = parse(&["/tmp/x", "all", "--quick", "--svg", "a.svg"]);
        let arguments = arguments.expect("good").expect("not only a check");
        assert_eq!(arguments.questions.len(), Question::ALL.len());
        assert_eq!((arguments.effort, arguments.format), (Effort::Quick, Format::Table));
    }
}
