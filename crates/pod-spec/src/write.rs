//! A plan as annotations: the reverse of `parse`, for tools that make or translate pods. Owns the shortest way to write
//! each value; leaves out defaults.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::code_set::CodeSet;
use crate::duration::DurationText;
use crate::keys::{
    CONDITIONS, EXIT_CODES, FATALS, KUBELETS_OWN, OOM_SCORES, PREFIX, RESTART_MODES, RESTART_POLICIES,
    ZERO_GRACES, word_of,
};
use crate::plan::{
    Backoff, Dependency, ExitCodes, Fatal, Gate, GateAction, Member, OomScore, Others, Plan, ProbeTiming,
    Restart, RestartMode, RestartPolicy, ZeroGrace,
};

impl Plan {
    /// The annotations of this plan, with whole keys. Reading them gives an equal plan.
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        let mut set = |key: &str, value: String| annotations.insert(format!("{PREFIX}{key}"), value);
        set("plan", self.list());
        if self.settings.restart_policy != RestartPolicy::default() {
            set("restart-policy", word_of(&RESTART_POLICIES, &self.settings.restart_policy).to_owned());
        }
        if let Some(grace) = self.settings.grace {
            set("grace", DurationText(grace).to_string());
        }
        if let Some(reserve) = self.settings.reserve {
            set("reserve", DurationText(reserve).to_string());
        }
        if let Some(timeout) = self.settings.gate_timeout {
            set("gate-timeout", DurationText(timeout).to_string());
        }
        if self.settings.zero_grace != ZeroGrace::default() {
            set("zero-grace", word_of(&ZERO_GRACES, &self.settings.zero_grace).to_owned());
        }
        if self.settings.exit_codes != ExitCodes::default() {
            set("exit-codes", word_of(&EXIT_CODES, &self.settings.exit_codes).to_owned());
        }
        if self.settings.oom_score != OomScore::default() {
            set("oom-score", word_of(&OOM_SCORES, &self.settings.oom_score).to_owned());
        }
        for (index, member) in self.members.iter().enumerate() {
            let name = member.key_name();
            if let Some(dependencies) = member.after.as_ref().filter(|_| !member.is_second_of_pair(index)) {
                set(&format!("after.{name}"), self.after(dependencies));
            }
            if member.gate != Gate::Running {
                set(&format!("ready.{name}"), member.gate.to_string());
            }
            if let Some(restart) = &member.restart {
                set(&format!("restart.{name}"), restart.to_string());
            }
            if let Some(fatal) = &member.fatal {
                set(&format!("fatal.{name}"), fatal.to_string());
            }
            if let Some(grace) = member.grace {
                set(&format!("grace.{name}"), DurationText(grace).to_string());
            }
            if let Some(signal) = member.stop_signal {
                set(&format!("stop-signal.{name}"), signal.to_string());
            }
            for (word, command) in [
                ("on-terminate", &member.on_terminate),
                ("pre-stop", &member.pre_stop),
                ("migrate", &member.migrate),
            ] {
                if let Some(command) = command {
                    set(&format!("{word}.{name}"), exec(command));
                }
            }
        }
        annotations
    }

    /// The value of `after.<c>`.
    fn after(&self, dependencies: &[Dependency]) -> String {
        let entries = dependencies.iter().filter_map(|dependency| {
            let name = self.members.get(dependency.member)?.key_name();
            Some(format!("{name}={}", word_of(&CONDITIONS, &dependency.condition)))
        });
        entries.collect::<Vec<_>>().join(", ")
    }

    /// The value of `podshim.io/plan`.
    fn list(&self) -> String {
        let groups = self.members.chunk_by(|one, next| one.entry == next.entry);
        let entries = groups.filter_map(|group| {
            let mut names = String::new();
            for (place, member) in group.iter().enumerate() {
                let second = group[..place].iter().any(|first| {
                    let index = first.pair.and_then(|second| self.members.get(second));
                    index.is_some_and(|second| second.name == member.name)
                });
                names += match (place, second) {
                    (0, _) => "",
                    (_, true) => "|",
                    (_, false) => "+",
                };
                names += &member.list_name();
            }
            Some(format!("{names}={}", group.first()?.role))
        });
        let others = match self.others {
            Others::Mains => Some("*=main".to_owned()),
            Others::Passthrough => None,
        };
        let kubelets_own = self.kubelets_own.named.iter().map(|name| format!("{name}={KUBELETS_OWN}"));
        entries.chain(kubelets_own).chain(others).collect::<Vec<_>>().join(", ")
    }
}

impl Member {
    /// The alias if there is one: it exists because the name is too long for a key.
    pub(crate) fn key_name(&self) -> &str {
        self.alias.as_ref().unwrap_or(&self.name)
    }

    fn list_name(&self) -> String {
        match &self.alias {
            Some(alias) => format!("{}@{alias}", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for Gate {
    /// The value of `ready.<c>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Skip => f.write_str("none"),
            Self::Probe { action, timing } => write!(f, "{action}{timing}"),
        }
    }
}

impl fmt::Display for GateAction {
    /// The action without its timing: `tcp::15021`, `exec:["test","-e","/tmp/ready"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(arguments) => f.write_str(&exec(arguments)),
            Self::Tcp { host, port } => write!(f, "tcp:{}", Address(*host, *port)),
            Self::Http { host, port, path } => write!(f, "http:{}{path}", Address(*host, *port)),
            Self::Grpc { port, service } if service.is_empty() => write!(f, "grpc:{port}"),
            Self::Grpc { port, service } => write!(f, "grpc:{port}/{service}"),
            Self::Log(pattern) => write!(f, "log:{}", pattern.as_str()),
            Self::Notify => f.write_str("notify"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

/// `exec:` and a command as a JSON array, which needs no quoting.
fn exec(arguments: &[String]) -> String {
    format!("exec:{}", serde_json::Value::from(arguments.to_vec()))
}

impl fmt::Display for Restart {
    /// The value of `restart.<c>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(&RESTART_MODES, &self.mode))?;
        if self.mode == RestartMode::OnFailure && self.codes != CodeSet::FAILURES {
            let (option, codes) = self.codes.shortest();
            write!(f, ";{option}={codes}")?;
        }
        let (own, default) = (self.backoff, Backoff::default());
        for (option, value, usual) in [
            ("first", own.first, default.first),
            ("base", own.base, default.base),
            ("max", own.max, default.max),
        ] {
            if value != usual {
                write!(f, ";{option}={}", DurationText(value))?;
            }
        }
        match self.limit {
            Some(limit) => write!(f, ";limit={limit}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Fatal {
    /// The value of `fatal.<c>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restart { limit } if *limit != Self::RESTARTS => write!(f, "restart;limit={limit}"),
            other => f.write_str(word_of(&FATALS, other)),
        }
    }
}

/// `[host]:port` of a gate, without the host if that is the default.
struct Address(Option<IpAddr>, u16);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(host, port) = *self;
        match host {
            None => write!(f, ":{port}"),
            Some(host) => write!(f, "{}", SocketAddr::new(host, port)),
        }
    }
}

impl fmt::Display for ProbeTiming {
    /// Only what differs from the default, each option with its `;`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        for (option, value, usual) in [
            ("delay", self.delay, default.delay),
            ("period", self.period, default.period),
            ("timeout", self.timeout, default.timeout),
        ] {
            if value != usual {
                write!(f, ";{option}={}", DurationText(value))?;
            }
        }
        for (option, value, usual) in
            [("fail", self.failures, default.failures), ("ok", self.successes, default.successes)]
        {
            if value != usual {
                write!(f, ";{option}={value}")?;
            }
        }
        Ok(())
    }
}
