//! What is legal but probably not meant (11.4). Owns the wording; the caller decides where warnings go (the shim's log,
//! Inspect). A warning never refuses a pod.

use std::fmt;

use crate::kruise::MarksProblem;
use crate::nearest::Hint;

/// A remark on one annotation; reads as one line, like an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// `ready.<main>` that nothing waits for.
    UnusedGate {
        /// The annotation's whole key.
        key: String,
        /// The main.
        name: String,
    },
    /// `reserve` without a sidecar that could stop after the mains.
    UnusedReserve {
        /// The annotation's whole key.
        key: String,
    },
    /// `exit-codes=real` under Always: the kubelet restarts on any code, so the codes make no difference to it.
    RealCodesAlways {
        /// The annotation's whole key.
        key: String,
    },
    /// `*=main` and named mains: naming them only changes what the pod waits for.
    NamedMainAndOthers {
        /// The annotation's whole key.
        key: String,
        /// The first named main.
        name: String,
    },
    /// A key for one of the other mains, whose name is close to a name of the plan.
    NearlyPlanned {
        /// The annotation's whole key.
        key: String,
        /// The name in it.
        name: String,
        /// The name of the plan.
        hint: Hint,
    },
    /// Marks of OpenKruise, on a node that reads them, that make no plan (S12).
    UnreadMarks {
        /// Why.
        problem: MarksProblem,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusedGate { key, name } => {
                write!(f, "{key}: nothing waits for main {name:?}, its gate has no effect")
            }
            Self::UnusedReserve { key } => {
                write!(f, "{key}: the plan has no sidecar that could stop after the mains, it has no effect")
            }
            Self::RealCodesAlways { key } => {
                write!(
                    f,
                    "{key}: \"real\" changes nothing with restart-policy Always: callers restart on every exit code"
                )
            }
            Self::NamedMainAndOthers { key, name } => {
                write!(f, "{key}: {name:?} is a main by \"*=main\" already")
            }
            Self::NearlyPlanned { key, name, hint } => {
                write!(f, "{key}: {name:?} is not in the plan and counts as a main of \"*=main\"{hint}")
            }
            Self::UnreadMarks { problem } => {
                write!(f, "OpenKruise's marks are not read, and the pod has no plan: {problem}")
            }
        }
    }
}
