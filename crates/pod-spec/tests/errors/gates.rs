//! Every wrong form of `ready.<c>` and its message.

use super::{PLAN, message};

#[test]
fn every_wrong_gate_says_why() {
    for (value, expected) in [
        (
            "redy",
            "unknown gate \"redy\" (one of: running, none, exec:, http:, tcp:, grpc:, log:, notify, file:)",
        ),
        ("", "unknown gate \"\" (one of: running, none, exec:, http:, tcp:, grpc:, log:, notify, file:)"),
        ("runing", "unknown gate \"runing\" (did you mean \"running\"?)"),
        ("Tcp::80", "unknown gate \"Tcp\" (did you mean \"tcp:\"?)"),
        ("none;period=1s", "\"none\" stands alone: nothing may follow it"),
        ("running:", "\"running\" stands alone: nothing may follow it"),
        ("notify:x", "\"notify\" stands alone: nothing may follow it"),
        ("exec", "\"exec\" needs more: write \"exec:<command>\""),
        ("exec:", "the command is empty"),
        ("exec: ;ok=1", "the command is empty"),
        ("exec:echo 'a", "the quote ' is never closed"),
        ("exec:echo \\", "the backslash at the end quotes nothing"),
        ("exec:[\"a\"] b", "the JSON array is followed by more text (options begin with \";\")"),
        ("exec:a; b", "unknown option \"b\" (one of: delay, period, timeout, fail, ok)"),
        ("tcp", "\"tcp\" needs more: write \"tcp:[host]:port\""),
        ("tcp:80", "\"80\" is not an address: write \"tcp:[host]:port\", with an IPv6 host in brackets"),
        (
            "tcp:::1:80",
            "\"::1:80\" is not an address: write \"tcp:[host]:port\", with an IPv6 host in brackets",
        ),
        (
            "tcp:[::1]80",
            "\"[::1]80\" is not an address: write \"tcp:[host]:port\", with an IPv6 host in brackets",
        ),
        (
            "tcp:localhost:80",
            "host \"localhost\" is not a literal IP address (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:[fe80::1%eth0]:80",
            "host \"fe80::1%eth0\" is not a literal IP address (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:0.0.0.0:80",
            "host 0.0.0.0 is not an address of one container (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:[::]:80",
            "host :: is not an address of one container (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:[::ffff:0.0.0.0]:80",
            "host ::ffff:0.0.0.0 is not an address of one container (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:255.255.255.255:80",
            "host 255.255.255.255 is not an address of one container (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:224.0.0.1:80",
            "host 224.0.0.1 is not an address of one container (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "tcp:[ff02::1]:80",
            "host ff02::1 is not an address of one container (leave it out: podshim tries the pod's own addresses)",
        ),
        ("tcp::0", "port \"0\" is not a number from 1 to 65535"),
        ("tcp::65536", "port \"65536\" is not a number from 1 to 65535"),
        ("tcp::+80", "port \"+80\" is not a number from 1 to 65535"),
        ("tcp::http", "port \"http\" is not a number from 1 to 65535"),
        ("tcp::80;", "unknown option \"\" (one of: delay, period, timeout, fail, ok)"),
        ("tcp::80;perod=1s", "unknown option \"perod\" (did you mean \"period\"?)"),
        ("tcp::80;period", "option \"period\" has no value: write option=value"),
        ("tcp::80;ok=1;ok=2", "option \"ok\" is given twice"),
        ("tcp::80;period=1", "period: \"1\" has no unit (write \"1s\" for seconds)"),
        ("tcp::80;period=99ms", "period: 99ms is too short, at least 100ms"),
        ("tcp::80;timeout=0s", "timeout: 0s is too short, at least 1ms"),
        ("tcp::80;delay=-1s", "delay: \"-1s\" is negative"),
        ("tcp::80;fail=0", "fail: \"0\" is not a number of at least 1"),
        ("tcp::80;ok=many", "ok: \"many\" is not a number of at least 1"),
        ("tcp::80;fail=+3", "fail: \"+3\" is not a number of at least 1"),
        ("tcp::80;fail=4294967296", "fail: \"4294967296\" is not a number of at least 1"),
        (
            "http:15021",
            "\"15021\" is not an address: write \"http:[host]:port/path\", with an IPv6 host in brackets",
        ),
        (
            "http://localhost:80/",
            "\"\" is not an address: write \"http:[host]:port/path\", with an IPv6 host in brackets",
        ),
        (
            "http:pod:80/",
            "host \"pod\" is not a literal IP address (leave it out: podshim tries the pod's own addresses)",
        ),
        (
            "http::80",
            "path \"\" is not a URL path: it must begin with \"/\" and have no spaces or control characters",
        ),
        (
            "http::80/a b",
            "path \"/a b\" is not a URL path: it must begin with \"/\" and have no spaces or control characters",
        ),
        ("grpc", "\"grpc\" needs more: write \"grpc:port[/service]\""),
        ("grpc:", "port \"\" is not a number from 1 to 65535"),
        ("grpc::9000", "port \":9000\" is not a number from 1 to 65535"),
        (
            "grpc:9000/",
            "service \"\" is not a name: write \"grpc:port\" or \"grpc:port/service\", without spaces",
        ),
        (
            "grpc:9000/a b",
            "service \"a b\" is not a name: write \"grpc:port\" or \"grpc:port/service\", without spaces",
        ),
        ("grpc:9000;ok=0", "ok: \"0\" is not a number of at least 1"),
        ("http::80/;period=1ms", "period: 1ms is too short, at least 100ms"),
        ("log:", "the pattern is empty"),
        ("log: ;fail=3", "the pattern is empty"),
        ("log:(?i)", "the pattern is empty"),
        ("log:a(b", "the pattern has a \"(\" that is never closed"),
        ("log:a)b", "the pattern has a \")\" without its \"(\""),
        ("log:[a", "the pattern has a \"[\" that is never closed"),
        ("log:[[:alpha:]]", "the pattern has a \"[\" inside [] (write \"\\[\" for the letter)"),
        (
            "log:[z-a]",
            "the pattern has an invalid range in []: write its ends as letters in ascending order, such as a-z",
        ),
        (
            "log:*ready",
            "the pattern has a '*' with nothing to repeat before it (write \"\\*\" for the letter)",
        ),
        ("log:a**", "the pattern has a '*' with nothing to repeat before it (write \"\\*\" for the letter)"),
        (
            "log:{\"ready\":true}",
            "the pattern has a \"{\" that begins no repetition: write {m}, {m,} or {m,n} up to 500 (or \"\\{\" for the letter)",
        ),
        (
            "log:x{ready}",
            "the pattern has a \"{\" that begins no repetition: write {m}, {m,} or {m,n} up to 500 (or \"\\{\" for the letter)",
        ),
        (
            "log:x{2,1}",
            "the pattern has a \"{\" that begins no repetition: write {m}, {m,} or {m,n} up to 500 (or \"\\{\" for the letter)",
        ),
        (
            "log:(a)\\1",
            "the pattern has a backslash with no meaning here: write \\d \\w \\s \\D \\W \\S \\t, or quote a sign, as in \\.",
        ),
        (
            "log:a(?=b)",
            "the pattern has a \"(?\" that is not supported (only \"(?:\", and \"(?i)\" at its beginning)",
        ),
        ("log:((a{99}){99}){99}", "the pattern is too large"),
        (
            "log:a;timeout=1s",
            "option \"timeout\" has no meaning here: podshim waits delay + fail * period for the container to report; remove it",
        ),
        (
            "notify;ok=2",
            "option \"ok\" has no meaning here: podshim waits delay + fail * period for the container to report; remove it",
        ),
        ("log:a;b", "unknown option \"b\" (one of: delay, period, timeout, fail, ok)"),
        ("file:ready", "path \"ready\" is not absolute"),
        ("file", "\"file\" needs more: write \"file:/<path>\""),
    ] {
        assert_eq!(
            message(&[PLAN, ("ready.proxy", value)]),
            format!("podshim.io/ready.proxy: {expected}"),
            "{value}"
        );
    }
}
