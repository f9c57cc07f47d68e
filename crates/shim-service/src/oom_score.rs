//! The `oom_score_adj` of processes that start in a protected container later (N8).
//!
//! Owns the highest that they may have. Which one that is, the core decides; `cgroups` writes it for those that are there.

use serde_json::Value;

/// The key of an OCI process.
const KEY: &str = "oomScoreAdj";

/// What the core has asked for so far.
#[derive(Debug, Default)]
pub(crate) struct HighestOomScore(Option<i32>);

impl HighestOomScore {
    pub(crate) fn lower(&mut self, highest: i32) {
        self.0 = Some(self.0.map_or(highest, |before| before.min(highest)));
    }

    /// Bounds the score of an OCI process. One that names none has its parent's, which is the shim's: lower than any container's.
    pub(crate) fn bound(&self, process: &mut Value) {
        let own = process.get(KEY).and_then(Value::as_i64);
        if let (Some(own), Some(highest)) = (own, self.0)
            && own > i64::from(highest)
        {
            process[KEY] = highest.into();
        }
    }

    /// The same for one as JSON; `None` if it stays as it is. What is no JSON is the OCI runtime's to refuse.
    pub(crate) fn bounded(&self, process: &[u8]) -> Option<Vec<u8>> {
        self.0?;
        let before: Value = serde_json::from_slice(process).ok()?;
        let mut after = before.clone();
        self.bound(&mut after);
        (after != before).then(|| after.to_string().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n8_a_further_process_has_the_score_that_its_container_was_lowered_to() {
        let mut highest = HighestOomScore::default();
        assert_eq!(highest.bounded(br#"{"oomScoreAdj":999}"#), None, "no main yet");
        highest.lower(950);
        highest.lower(900);
        highest.lower(990);
        let bounded =
            |process: &str| highest.bounded(process.as_bytes()).map(|new| String::from_utf8(new).unwrap());
        assert_eq!(
            bounded(r#"{"oomScoreAdj":999,"new":1}"#).as_deref(),
            Some(r#"{"new":1,"oomScoreAdj":900}"#)
        );
        for stays in [r#"{"oomScoreAdj":900}"#, r#"{"oomScoreAdj":-5}"#, "{}", "no JSON"] {
            assert_eq!(bounded(stays), None, "{stays}");
        }
    }
}
