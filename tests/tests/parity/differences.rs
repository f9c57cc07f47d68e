//! Compares what two shims did, field by field. The list of intended differences is in `known`.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::record::Record;

/// A difference between containerd's own shim and podshim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub step: String,
    pub field: String,
    pub runc: Option<String>,
    pub podshim: Option<String>,
}

/// All differences of two runs of one scenario. A step that only one run has (an extra event, or one in another place)
/// is one difference.
pub fn between(runc: &[Record], podshim: &[Record]) -> Vec<Difference> {
    let mut found = Vec::new();
    let (mut at, mut other) = (0, 0);
    for (in_runc, in_podshim) in common_steps(runc, podshim).into_iter().chain([(runc.len(), podshim.len())])
    {
        found.extend(runc[at..in_runc].iter().map(|record| only(record, Side::Runc)));
        found.extend(podshim[other..in_podshim].iter().map(|record| only(record, Side::Podshim)));
        if let (Some(one), Some(other)) = (runc.get(in_runc), podshim.get(in_podshim)) {
            in_fields(one, other, &mut found);
        }
        (at, other) = (in_runc + 1, in_podshim + 1);
    }
    found
}

enum Side {
    Runc,
    Podshim,
}

fn only(record: &Record, side: Side) -> Difference {
    let came = Some("came here".to_owned());
    let (runc, podshim) = match side {
        Side::Runc => (came, None),
        Side::Podshim => (None, came),
    };
    Difference { step: record.step.clone(), field: "step".to_owned(), runc, podshim }
}

fn in_fields(runc: &Record, podshim: &Record, found: &mut Vec<Difference>) {
    let fields: BTreeSet<_> = runc.fields.iter().chain(&podshim.fields).map(|(name, _)| name).collect();
    for field in fields {
        let (in_runc, in_podshim) = (value(runc, field), value(podshim, field));
        if in_runc != in_podshim {
            let step = runc.step.clone();
            found.push(Difference { step, field: field.clone(), runc: in_runc, podshim: in_podshim });
        }
    }
}

/// The longest sequence of steps that both runs have, as pairs of indexes.
fn common_steps(runc: &[Record], podshim: &[Record]) -> Vec<(usize, usize)> {
    let mut longest = vec![vec![0_usize; podshim.len() + 1]; runc.len() + 1];
    for one in (0..runc.len()).rev() {
        for other in (0..podshim.len()).rev() {
            longest[one][other] = if runc[one].step == podshim[other].step {
                longest[one + 1][other + 1] + 1
            } else {
                longest[one + 1][other].max(longest[one][other + 1])
            };
        }
    }
    let (mut one, mut other, mut pairs) = (0, 0, Vec::new());
    while one < runc.len() && other < podshim.len() {
        if runc[one].step == podshim[other].step {
            pairs.push((one, other));
            (one, other) = (one + 1, other + 1);
        } else if longest[one + 1][other] >= longest[one][other + 1] {
            one += 1;
        } else {
            other += 1;
        }
    }
    pairs
}

/// A field's value; for a field that occurs more than once, all its values.
fn value(record: &Record, field: &str) -> Option<String> {
    let values: Vec<_> =
        record.fields.iter().filter(|(name, _)| name == field).map(|(_, value)| value.as_str()).collect();
    (!values.is_empty()).then(|| values.join(" | "))
}

/// The differences as a readable table.
pub fn table(differences: &[&Difference]) -> String {
    let mut text = String::new();
    let shown =
        |value: &Option<String>| value.as_ref().map_or_else(|| "-".to_owned(), |text| format!("{text:?}"));
    for Difference { step, field, runc, podshim } in differences {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n  {step}: {field}\n     runc     {}\n     podshim  {}",
            shown(runc),
            shown(podshim)
        );
    }
    text
}
