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

    /// For processes that are there.
    pub(crate) fn get(&self) -> Option<i32> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn n8_a_further_process_has_the_score_that_its_container_was_lowered_to() {
        let mut highest = HighestOomScore::default();
        let bounded = |highest: &HighestOomScore, mut process: Value| {
            highest.bound(&mut process);
            process
        };
        assert_eq!(
            bounded(&highest, json!({"oomScoreAdj": 999})),
            json!({"oomScoreAdj": 999}),
            "no main yet"
        );
        highest.lower(950);
        highest.lower(900);
        highest.lower(990);
        assert_eq!(highest.get(), Some(900));
        assert_eq!(
            bounded(&highest, json!({"oomScoreAdj": 999, "new": 1})),
            json!({"oomScoreAdj": 900, "new": 1})
        );
        for stays in [json!({"oomScoreAdj": 900}), json!({"oomScoreAdj": -5}), json!({}), Value::Null] {
            assert_eq!(bounded(&highest, stays.clone()), stays);
        }
    }
}
