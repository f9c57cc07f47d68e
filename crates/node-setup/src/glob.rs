//! The globs of containerd's `pod_annotations`: Go's path.Match, whose `*` and `?` do not cross a slash (trap 27).

/// Whether a glob matches a name. Character classes work as in Go, and a malformed one matches nothing.
pub fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    from(&glob, &name)
}

fn from(glob: &[char], name: &[char]) -> bool {
    match glob.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => {
            let reach = name.iter().position(|c| *c == '/').unwrap_or(name.len());
            (0..=reach).any(|skip| from(rest, &name[skip..]))
        }
        Some(('?', rest)) => name.split_first().is_some_and(|(c, name)| *c != '/' && from(rest, name)),
        Some(('[', rest)) => {
            let Some(end) = rest.iter().skip(1).position(|c| *c == ']').map(|end| end + 1) else {
                return false;
            };
            name.split_first()
                .is_some_and(|(c, name)| in_class(&rest[..end], *c) && from(&rest[end + 1..], name))
        }
        Some(('\\', rest)) => match (rest.split_first(), name.split_first()) {
            (Some((wanted, rest)), Some((c, name))) => wanted == c && from(rest, name),
            _ => false,
        },
        Some((wanted, rest)) => name.split_first().is_some_and(|(c, name)| c == wanted && from(rest, name)),
    }
}

fn in_class(class: &[char], c: char) -> bool {
    let (negated, mut class) = match class.split_first() {
        Some(('^', rest)) => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    while let Some((low, rest)) = class.split_first() {
        class = match rest {
            ['-', high, rest @ ..] => {
                found |= (*low..=*high).contains(&c);
                rest
            }
            _ => {
                found |= *low == c;
                rest
            }
        };
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap_27_a_star_does_not_cross_a_slash() {
        for (glob, name, wanted) in [
            ("podshim.io/*", "podshim.io/plan", true),
            ("podshim.io/*", "podshim.io/ready.proxy", true),
            ("*", "podshim.io/plan", false),
            ("podshim.io*", "podshim.io/plan", false),
            ("*/*", "podshim.io/plan", true),
            ("podshim.i?/pl[a-c]n", "podshim.io/plan", true),
            ("podshim.io/[^x]*", "podshim.io/plan", true),
            ("podshim.io/[", "podshim.io/[", false),
            ("podshim\\.io/plan", "podshim.io/plan", true),
        ] {
            assert_eq!(matches(glob, name), wanted, "{glob} {name}");
        }
    }
}
