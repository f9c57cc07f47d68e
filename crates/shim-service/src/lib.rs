//! shim-service
