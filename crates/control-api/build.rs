//! Generates the messages and the service from `proto/`. With protobuf's lite runtime, which has no reflection: that would cost
//! the shim more than all messages together.

use std::path::PathBuf;
use std::{env, fs};

use ttrpc_codegen::{Codegen, Customize, ProtobufCustomize};

const PROTO: &str = "../../proto/podshim/v1/pod.proto";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={PROTO}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    Codegen::new()
        .input(PROTO)
        .include("../../proto/podshim/v1")
        .rust_protobuf()
        .rust_protobuf_customize(ProtobufCustomize::default().lite_runtime(true).gen_mod_rs(false))
        .customize(Customize { async_all: true, ..Default::default() })
        .out_dir(&out)
        .run()?;
    // `include!` accepts no file with inner attributes.
    for name in ["pod.rs", "pod_ttrpc.rs"] {
        let path = out.join(name);
        let text = fs::read_to_string(&path)?;
        let inner = |line: &&str| !line.starts_with("#!") && !line.starts_with("//!");
        fs::write(&path, text.lines().filter(inner).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(())
}
