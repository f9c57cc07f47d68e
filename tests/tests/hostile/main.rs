//! What a hostile pod may try against its shim and its neighbours, on real containers; docs/trust.md lists each attack
//! with its effect. `hack/stress --hostile` runs all of them at once.

mod all_at_once;
mod calls;
mod children;
mod files;
mod leases;
mod limits;
mod locks;
mod messages;
mod neighbours;
mod probes;
mod process_1;
mod sandboxes;
mod support;
mod times;
mod work;
