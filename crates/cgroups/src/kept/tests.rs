//! The limits of kept groups. Whole restarts are in `tests/kept.rs`.

use oci_runtime::runtime::DeleteMode;
use oci_runtime::test_container::TestContainer;
use test_support::{run, within};

use super::*;
use crate::tests::running;

/// One that the kernel refuses is logged; the others are written.
#[test]
fn r6_limits_that_bound_each_other_are_written_in_the_order_that_the_kernel_takes() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |spec| {
            spec["linux"]["resources"] = serde_json::json!({"memory": {"limit": 67108864}});
        });
        let (created, cgroup) = running(&test).await;
        let Cgroup::V1(hierarchies) = &cgroup else { panic!("this test knows cgroup v1 only") };
        let memory = hierarchies.memory.as_ref().unwrap();
        let limit = |name: &str, text: &str| Limit { path: memory.join(name), text: format!("{text}\n") };
        // With swap accounting the second must be raised before the first.
        let mut limits = vec![limit("memory.limit_in_bytes", "268435456")];
        if limits[0].path.with_file_name("memory.memsw.limit_in_bytes").exists() {
            fs::write(memory.join("memory.memsw.limit_in_bytes"), "67108864").unwrap();
            limits.push(limit("memory.memsw.limit_in_bytes", "268435456"));
        }
        limits.insert(0, limit("memory.swappiness", "never a number"));
        limits.push(limit("memory.never_there", "1"));
        restore(&limits);
        assert_eq!(fs::read_to_string(&limits[1].path).unwrap(), limits[1].text);
        created.process.signal(processes::SignalNumber::KILL).unwrap();
        within(created.exit).await;
        test.container.delete(DeleteMode::Ended).await.unwrap();
    });
}
