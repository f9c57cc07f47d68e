//! The value of `ready.<c>`: which gate, what it probes, how often. Owns its grammar. Never looks at the pod: only a
//! probe can show whether an address is the container's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use log_pattern::Pattern;

use crate::command;
use crate::error::GateError;
use crate::excerpt::excerpt;
use crate::limits::{MIN_PROBE_PERIOD, MIN_PROBE_TIMEOUT};
use crate::nearest::{Hint, nearest};
use crate::plan::{Gate, GateAction, ProbeTiming};

use super::options;

/// The gates as a hint shows them; those with a colon take an argument.
const GATES: [&str; 9] = ["running", "none", "exec:", "http:", "tcp:", "grpc:", "log:", "notify", "file:"];

const TCP_FORM: &str = "tcp:[host]:port";
const HTTP_FORM: &str = "http:[host]:port/path";
const GRPC_FORM: &str = "grpc:port[/service]";

/// The longest name of a service to ask about.
const SERVICE_LONGEST: usize = 256;

/// Options of a probe's timing.
#[derive(Clone, Copy, PartialEq)]
enum TimingOption {
    Delay,
    Period,
    Timeout,
    Failures,
    Successes,
}

const TIMING_OPTIONS: [(&str, TimingOption); 5] = [
    ("delay", TimingOption::Delay),
    ("period", TimingOption::Period),
    ("timeout", TimingOption::Timeout),
    ("fail", TimingOption::Failures),
    ("ok", TimingOption::Successes),
];

/// The word that says which gate a value is, and what follows it. Blanks around the word do not count: code that looks
/// for a kind of gate must use this.
pub(crate) fn kind(value: &str) -> (&str, &str) {
    let (kind, rest) = value.split_at(value.find([':', ';']).unwrap_or(value.len()));
    (kind.trim(), rest)
}

/// Reads a gate.
pub(super) fn parse(value: &str) -> Result<Gate, GateError> {
    let (kind, rest) = kind(value);
    let argument = rest.strip_prefix(':');
    let needs = |gate, form| argument.ok_or(GateError::Incomplete { gate, form });
    match kind {
        "running" => alone("running", rest).map(|()| Gate::Running),
        "none" => alone("none", rest).map(|()| Gate::Skip),
        "notify" => {
            if argument.is_some() {
                return Err(GateError::StandsAlone { gate: "notify" });
            }
            probe(GateAction::Notify, rest.strip_prefix(';'))
        }
        "exec" => {
            let (arguments, options) = command::parse(needs("exec", "exec:<command>")?)?;
            probe(GateAction::Exec(arguments), options)
        }
        "tcp" => {
            let (target, options) = until_semicolon(needs("tcp", TCP_FORM)?);
            let (host, port) = address(target.trim(), TCP_FORM)?;
            probe(GateAction::Tcp { host, port }, options)
        }
        "http" => {
            let (target, options) = until_semicolon(needs("http", HTTP_FORM)?);
            let target = target.trim();
            let (authority, path) = target.split_at(target.find('/').unwrap_or(target.len()));
            let (host, port) = address(authority, HTTP_FORM)?;
            if path.is_empty() || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(GateError::UrlPath { path: excerpt(path) });
            }
            probe(GateAction::Http { host, port, path: path.to_owned() }, options)
        }
        "grpc" => grpc(needs("grpc", GRPC_FORM)?),
        "log" => {
            let (pattern, options) = pattern(needs("log", "log:<regex>")?);
            probe(GateAction::Log(Pattern::parse(pattern.trim())?), options)
        }
        "file" => {
            let (path, options) = until_semicolon(needs("file", "file:/<path>")?);
            let path = path.trim();
            if !path.starts_with('/') || path.contains('\0') {
                return Err(GateError::FilePath { path: excerpt(path) });
            }
            probe(GateAction::File(path.to_owned()), options)
        }
        unknown => Err(GateError::Unknown { gate: excerpt(unknown), hint: hint(unknown) }),
    }
}

fn grpc(argument: &str) -> Result<Gate, GateError> {
    let (target, options) = until_semicolon(argument);
    let (number, service) = match target.trim().split_once('/') {
        Some((number, service)) => (number, Some(service)),
        None => (target.trim(), None),
    };
    let port = port(number)?;
    let is_name = |service: &str| {
        (1..=SERVICE_LONGEST).contains(&service.len())
            && !service.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if let Some(service) = service.filter(|service| !is_name(service)) {
        return Err(GateError::Service { service: excerpt(service) });
    }
    probe(GateAction::Grpc { port, service: service.unwrap_or_default().to_owned() }, options)
}

fn hint(unknown: &str) -> Hint {
    match nearest(unknown, GATES.iter().map(|gate| gate.trim_end_matches(':'))) {
        Some(word) => {
            let shown = GATES.iter().find(|gate| gate.trim_end_matches(':') == word);
            Hint::Nearest(shown.map_or(word, |gate| *gate).to_owned())
        }
        None => Hint::OneOf(GATES.to_vec()),
    }
}

/// A gate without a probe has no options.
fn alone(gate: &'static str, rest: &str) -> Result<(), GateError> {
    if rest.is_empty() { Ok(()) } else { Err(GateError::StandsAlone { gate }) }
}

fn probe(action: GateAction, options: Option<&str>) -> Result<Gate, GateError> {
    let timing = timing(&action, options)?;
    Ok(Gate::Probe { action, timing })
}

/// Reads `;delay=0s;period=1s;timeout=1s;fail=30;ok=1`: any of them, in any order.
fn timing(action: &GateAction, options: Option<&str>) -> Result<ProbeTiming, GateError> {
    let mut timing = ProbeTiming::default();
    let Some(options) = options else { return Ok(timing) };
    for given in options::split(options, &TIMING_OPTIONS)? {
        match given.option {
            TimingOption::Delay => timing.delay = given.duration(Duration::ZERO)?,
            TimingOption::Period => timing.period = given.duration(MIN_PROBE_PERIOD)?,
            // podshim does not probe, so no answer can be late and no probe is repeated.
            TimingOption::Timeout | TimingOption::Successes if action.is_waited_for() => {
                return Err(GateError::NothingAsked { option: given.word() });
            }
            TimingOption::Timeout => timing.timeout = given.duration(MIN_PROBE_TIMEOUT)?,
            TimingOption::Failures => timing.failures = given.count(1)?,
            TimingOption::Successes => timing.successes = given.count(1)?,
        }
    }
    Ok(timing)
}

fn until_semicolon(text: &str) -> (&str, Option<&str>) {
    match text.split_once(';') {
        Some((target, options)) => (target, Some(options)),
        None => (text, None),
    }
}

/// A regular expression ends at the first `;` without a backslash: `\;` is a semicolon in it.
fn pattern(text: &str) -> (&str, Option<&str>) {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            ';' => return (&text[..at], text.get(at + 1..)),
            _ => {}
        }
    }
    (text, None)
}

/// `[host]:port`, the host a literal IP (v6 in brackets) or left out.
///
/// U2 allows only addresses local to the probed container. The pod's own IP is not known when the sandbox is
/// created, so any unicast address passes here; the probe itself refuses one that is not local.
fn address(text: &str, form: &'static str) -> Result<(Option<IpAddr>, u16), GateError> {
    let malformed = || GateError::Address { address: excerpt(text), form };
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, port) = bracketed.split_once("]:").ok_or_else(malformed)?;
        let literal =
            host.parse::<Ipv6Addr>().map_err(|_| GateError::HostNotLiteral { host: excerpt(host) })?;
        (Some(IpAddr::V6(literal)), port)
    } else {
        let (host, port) = text.split_once(':').ok_or_else(malformed)?;
        if port.contains(':') {
            return Err(malformed());
        }
        let literal = match host {
            "" => None,
            _ => Some(
                host.parse::<Ipv4Addr>().map_err(|_| GateError::HostNotLiteral { host: excerpt(host) })?,
            ),
        };
        (literal.map(IpAddr::V4), port)
    };
    if let Some(host) = host.filter(|host| !is_unicast(*host)) {
        return Err(GateError::HostNotUnicast { host });
    }
    Ok((host, self::port(port)?))
}

fn port(text: &str) -> Result<u16, GateError> {
    // Rust's own parser takes a sign, the grammar does not.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(GateError::Port { port: excerpt(text) }),
    }
}

fn is_unicast(host: IpAddr) -> bool {
    // An IPv4 address in IPv6 form is judged as what it is.
    let host = host.to_canonical();
    let broadcast = IpAddr::V4(Ipv4Addr::BROADCAST);
    !host.is_unspecified() && !host.is_multicast() && host != broadcast
}
