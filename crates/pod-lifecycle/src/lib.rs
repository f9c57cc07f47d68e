//! pod-lifecycle
