//! The five limits in the words of cgroup v1, of v2 and of systemd, and all others by name.

use serde_json::json;

use super::*;

fn texts(settings: &[Setting]) -> String {
    settings.iter().map(|setting| format!("{}={}", setting.file, setting.text)).collect::<Vec<_>>().join(" ")
}

fn written(resources: &Value, version: CgroupVersion) -> String {
    texts(&understood(resources).unwrap().settings(version))
}

#[test]
fn a_limit_that_cri_does_not_set_for_a_sandbox_is_named() {
    for (resources, field) in [
        (json!({"cpu": {"shares": 2, "mems": "0"}}), "cpu.mems"),
        (json!({"cpu": {"cpus": "0"}}), "cpu.cpus"),
        (json!({"cpu": {"burst": 0}}), "cpu.burst"),
        (json!({"cpu": {"idle": 0}}), "cpu.idle"),
        (json!({"cpu": {"realtimePeriod": 5}}), "cpu.realtimePeriod"),
        (json!({"memory": {"limit": -2}}), "memory.limit"),
        (json!({"memory": {"limit": 5, "swap": 6}}), "memory.swap"),
        (json!({"memory": {"limit": 5, "swappiness": 0}}), "memory.swappiness"),
        (json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 5}]}), "hugepageLimits"),
        (json!({"unified": {"cpu.max": "5000"}}), "unified.cpu.max"),
        (json!({"blockIO": {"weight": 100}}), "blockIO.weight"),
        (json!({"rdma": {"mlx5_1": {"hcaHandles": 3}}}), "rdma.mlx5_1"),
    ] {
        let error = understood(&resources).unwrap_err().to_string();
        assert_eq!(error, format!("linux.resources.{field} is not done by podshim itself"));
    }
    // What says nothing needs nothing.
    let nothing =
        json!({"cpu": {"cpus": ""}, "hugepageLimits": [], "unified": {}, "devices": [{"allow": true}]});
    assert_eq!(understood(&nothing), Ok(Limits::default()));
}

#[test]
fn the_limits_of_cri_are_written_in_both_versions() {
    let sandbox = json!({"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2}});
    assert_eq!(written(&sandbox, CgroupVersion::V1), "cpu.shares=2");
    assert_eq!(written(&sandbox, CgroupVersion::V2), "cpu.weight=1");
    let all = json!({
        "cpu": {"shares": 1024, "quota": 50000, "period": 200_000},
        "memory": {"limit": 1 << 20}, "pids": {"limit": -1},
    });
    assert_eq!(
        written(&all, CgroupVersion::V1),
        "cpu.shares=1024 cpu.cfs_period_us=200000 cpu.cfs_quota_us=50000 memory.limit_in_bytes=1048576 pids.max=max"
    );
    assert_eq!(
        written(&all, CgroupVersion::V2),
        "cpu.weight=39 cpu.max=50000 200000 memory.max=1048576 pids.max=max"
    );
    let unlimited = json!({"memory": {"limit": -1}, "cpu": {"quota": -1}});
    assert_eq!(written(&unlimited, CgroupVersion::V1), "cpu.cfs_quota_us=-1 memory.limit_in_bytes=-1");
    assert_eq!(written(&unlimited, CgroupVersion::V2), "cpu.max=max 100000 memory.max=max");
    assert_eq!(weight(262_144), 10_000);
    assert_eq!(weight(0), 1);
}

/// As the OCI runtimes, which keep what they have configured before.
#[test]
fn of_quota_and_period_the_one_that_is_not_named_stays() {
    let written = |cpu: Value, of_group: Option<(i64, u64)>| {
        let of_group = of_group.map(|(quota, period)| CpuTime { quota, period });
        let limits = understood(&json!({"cpu": cpu})).unwrap().beside(|| of_group);
        texts(&[limits.settings(CgroupVersion::V1), limits.settings(CgroupVersion::V2)].concat())
    };
    assert_eq!(
        written(json!({"period": 50_000}), Some((20_000, 100_000))),
        "cpu.cfs_period_us=50000 cpu.cfs_quota_us=20000 cpu.max=20000 50000"
    );
    assert_eq!(
        written(json!({"quota": 10_000}), Some((20_000, 50_000))),
        "cpu.cfs_period_us=50000 cpu.cfs_quota_us=10000 cpu.max=10000 50000"
    );
    assert_eq!(
        written(json!({"quota": -1}), Some((20_000, 50_000))),
        "cpu.cfs_period_us=50000 cpu.cfs_quota_us=-1 cpu.max=max 50000"
    );
    assert_eq!(
        written(json!({"period": 50_000}), Some((-1, 100_000))),
        "cpu.cfs_period_us=50000 cpu.cfs_quota_us=-1 cpu.max=max 50000"
    );
    // A group without that controller: the file is missing, and the error names it.
    assert_eq!(written(json!({"quota": 10_000}), None), "cpu.cfs_quota_us=10000 cpu.max=10000 100000");
    assert_eq!(written(json!({"shares": 2}), Some((20_000, 50_000))), "cpu.shares=2 cpu.weight=1");
}

#[test]
fn the_processor_time_of_a_group_is_read() {
    assert_eq!(CpuTime::of_v2("max 100000\n"), Some(CpuTime { quota: -1, period: 100_000 }));
    assert_eq!(CpuTime::of_v2("5000 50000\n"), Some(CpuTime { quota: 5000, period: 50_000 }));
    assert_eq!(CpuTime::of_v2("much 50000"), None);
    assert_eq!(CpuTime::of_v2("5000"), None);
}

/// systemd takes a quota for a second, in whole hundredths, and each version's own names.
#[test]
fn the_limits_of_cri_are_properties_of_a_scope() {
    let limits = understood(&json!({
        "cpu": {"shares": 1024, "quota": 50_500, "period": 200_000},
        "memory": {"limit": 1 << 20}, "pids": {"limit": -1},
    }))
    .unwrap();
    let quota = number("CPUQuotaPerSecUSec", 260_000);
    let tasks = number("TasksMax", u64::MAX);
    assert_eq!(
        limits.properties(CgroupVersion::V1),
        [number("CPUShares", 1024), number("MemoryLimit", 1 << 20), tasks.clone(), quota.clone()]
    );
    assert_eq!(
        limits.properties(CgroupVersion::V2),
        [number("CPUWeight", 39), number("MemoryMax", 1 << 20), tasks, quota]
    );
    let unlimited = understood(&json!({"cpu": {"quota": -1}, "memory": {"limit": -1}})).unwrap();
    assert_eq!(
        unlimited.properties(CgroupVersion::V2),
        [number("MemoryMax", u64::MAX), number("CPUQuotaPerSecUSec", u64::MAX)]
    );
    let most = understood(&json!({"cpu": {"quota": i64::MAX, "period": 1}})).unwrap();
    assert_eq!(most.properties(CgroupVersion::V2), [number("CPUQuotaPerSecUSec", u64::MAX)]);
}

/// As runc: 20 ms in 40 ms are half of a processor.
#[test]
fn a_scope_has_the_period_of_an_update() {
    for (cpu, had, quota, period) in [
        (json!({"quota": 20_000, "period": 40_000}), (-1, 100_000), Some(500_000), Some(40_000)),
        (json!({"quota": 20_000}), (10_000, 40_000), Some(500_000), Some(40_000)),
        (json!({"quota": 20_000, "period": 100_000}), (10_000, 40_000), Some(200_000), Some(100_000)),
        (json!({"quota": 20_000, "period": 100_000}), (10_000, 100_000), Some(200_000), None),
        (json!({"quota": 20_000}), (-1, 100_000), Some(200_000), None),
        (json!({"period": 40_000}), (10_000, 100_000), Some(250_000), Some(40_000)),
        (json!({"period": 40_000}), (-1, 100_000), Some(u64::MAX), Some(40_000)),
        (json!({"shares": 2}), (10_000, 40_000), None, None),
    ] {
        let of_group = Some(CpuTime { quota: had.0, period: had.1 });
        let limits = understood(&json!({"cpu": cpu})).unwrap().beside(|| of_group);
        let quota = quota.map(|quota| number("CPUQuotaPerSecUSec", quota));
        let properties = limits.properties(CgroupVersion::V2);
        let found = properties.into_iter().find(|property| property.name == "CPUQuotaPerSecUSec");
        assert_eq!(found, quota, "{cpu} {had:?}");
        let period = period.map(|period| number("CPUQuotaPeriodUSec", period));
        assert_eq!(limits.period_property(of_group), period, "{cpu} {had:?}");
    }
}
