//! The kernel's numbers of capabilities, by the names of a spec.

/// By their numbers, without `CAP_` (capability.h of Linux 6.18). A later one is not done by podshim itself.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The bit of a capability in a set.
pub(super) fn bit_of(name: &str) -> Option<u64> {
    let name = name.strip_prefix("CAP_")?;
    NAMES.iter().position(|known| *known == name).map(|number| 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_kernels_numbers() {
        let of = |name: &str| bit_of(name).map(u64::trailing_zeros);
        assert_eq!(of("CAP_CHOWN"), Some(0));
        assert_eq!(of("CAP_SYS_ADMIN"), Some(21));
        assert_eq!(of("CAP_CHECKPOINT_RESTORE"), Some(40));
        assert_eq!((of("SYS_ADMIN"), of("CAP_NONE")), (None, None));
    }
}
