//! oci-runtime
