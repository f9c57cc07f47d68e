//! What patterns find, checked against another engine, and what they cost.

use proptest::prelude::*;

use super::*;

fn finds(pattern: &str, line: &str) -> bool {
    Pattern::parse(pattern).expect(pattern).matcher().is_match(line)
}

#[test]
fn patterns_of_usual_programs() {
    for (pattern, line) in [
        ("listening on", "2026-01-01 server: listening on :8080"),
        ("^all dependencies initialized", "all dependencies initialized. starting workers"),
        (r"Envoy proxy is ready$", "info\tEnvoy proxy is ready"),
        (r#""msg":"ready""#, r#"{"level":"info","msg":"ready"}"#),
        (r"started in \d+(\.\d+)? ?m?s", "started in 3.25 s"),
        (r"(?i)READY|serving", "now Serving requests"),
    ] {
        assert!(finds(pattern, line), "{pattern}");
        assert!(!finds(pattern, "starting up"), "{pattern}");
    }
}

/// One matcher serves many lines: it keeps nothing of a line for the next one, whether it matched or not.
#[test]
fn a_matcher_remembers_nothing() {
    let mut matcher = Pattern::parse("^ab$").expect("a pattern").matcher();
    for (line, expected) in
        [("ab", true), ("b", false), ("a", false), ("b", false), ("ab", true), ("", false)]
    {
        assert_eq!(matcher.is_match(line), expected, "{line}");
    }
}

/// DESIGN §6: patterns for which other engines take exponential time, on the longest possible line.
#[test]
fn no_pattern_is_slow() {
    let line = "a".repeat(16 * 1024);
    for pattern in ["(a*)*b", "(a|a)*b", "(a|aa)+b$", "(.*)(.*)(.*)(.*)b", "a{0,120}a{0,120}b"] {
        // Without the linear bound this never ends; the test runner has a deadline.
        assert!(!finds(pattern, &line), "{pattern}");
    }
}

/// DESIGN §6, issue 18: the cost of a class depends on what it means. 60,000 letters of which two differ count as two,
/// also if the class is repeated; and a class of 300 ranges is a large pattern.
#[test]
fn a_class_is_as_large_as_what_it_means() {
    let class = format!("[{}a]", "b".repeat(60_000));
    let size = |pattern: &str| Pattern::parse(pattern).map(|pattern| pattern.size());
    assert_eq!(size(&format!("{class}{{500}}#")), Ok(502));
    assert_eq!(size(&class), size("[ab]"));
    let sparse: String = (0..300).filter_map(|n| char::from_u32(0x1000 + 2 * n)).collect();
    assert_eq!(size(&format!("[{sparse}]")), Ok(301));
    assert_eq!(size(&format!("[{sparse}]{{100}}")), Ok(400), "shared");
    assert_eq!(size(&format!("[{sparse}][{sparse}]")), Err(PatternError::TooLarge));
    assert_eq!(size(&"a|".repeat(30_000)), Err(PatternError::TooLarge));
    assert_eq!(size(&"(?:a{0}){0}".repeat(5_000)), Err(PatternError::TooLarge));
    // The case that was found: it took 0.7 GB, and minutes for a line.
    let line = "b".repeat(16 * 1024);
    assert!(!finds(&format!("{class}{{500}}#"), &line));
}

/// Each bound of `limits` at its last good value, and one beyond it.
#[test]
fn a_pattern_at_a_bound_is_good_and_one_beyond_it_is_too_large() {
    // Instructions, the last of which says that the pattern is found.
    let letters = |count: usize| "a".repeat(count);
    let groups = |count: usize| format!("{}a{}", "(".repeat(count), ")".repeat(count));
    // Letters that the repetition by 0 keeps out of the program.
    let unused = |count: usize| format!("(?:{}){{0}}", letters(count));
    // 8163 visits of nodes that produce no instruction.
    let visits = |count: usize| format!("(?:(?:a{{0}}){{135}}){{20}}{}", letters(count - 8163));
    for (good, too_large) in [
        (letters(511), letters(512)),
        (groups(32), groups(33)),
        (unused(8191), unused(8192)),
        (visits(8192), visits(8193)),
    ] {
        assert_eq!(Pattern::parse(&good).map(drop), Ok(()), "{good:.40}");
        assert_eq!(Pattern::parse(&too_large), Err(PatternError::TooLarge), "{too_large:.40}");
    }
    assert_eq!(Pattern::parse(&letters(511)).map(|pattern| pattern.size()), Ok(MAX_SIZE));
}

#[test]
fn a_repetition_counts_upwards() {
    for good in ["a{2}", "a{2,}", "a{2,2}", "a{2,3}", "a{500}"] {
        assert_eq!(Pattern::parse(good).map(|pattern| pattern.as_str().to_owned()), Ok(good.to_owned()));
    }
    for bad in ["a{3,2}", "a{501}", "a{0,501}", "a{,2}"] {
        assert_eq!(Pattern::parse(bad), Err(PatternError::Repetition), "{bad}");
    }
}

#[test]
fn an_escape_is_a_set_a_tab_or_a_sign() {
    for (pattern, good, bad) in [
        (r"^\s$", [" ", "\t"], ["a", "s"]),
        (r"^\S$", ["a", "s"], [" ", "\t"]),
        (r"^a\tb$", ["a\tb"; 2], ["atb", "a b"]),
        (r"^\-\ \.$", ["- ."; 2], ["- a", "-  "]),
    ] {
        assert!(good.iter().all(|line| finds(pattern, line)), "{pattern}");
        assert!(!bad.iter().any(|line| finds(pattern, line)), "{pattern}");
    }
    for bad in [r"\T", r"\a", r"\1", "\\é", "\\"] {
        assert_eq!(Pattern::parse(bad), Err(PatternError::Escape), "{bad}");
    }
}

#[test]
fn a_class_is_of_letters_ranges_and_sets() {
    for (pattern, good, bad) in [
        ("^[]a]$", "]a", "b["),
        ("^[a-a]$", "a", "b-"),
        (r"^[+-\.]$", "+,-.", "/*"),
        (r"^[\--/]$", "-./", ",0"),
        (r"^[\w-]$", "a0_-", ".,"),
        (r"^[\t-]$", "\t-", "t,"),
        (r"^[\d]$", "059", "a/"),
        ("^[^]]$", "ab[", "]"),
    ] {
        assert!(good.chars().all(|letter| finds(pattern, &letter.to_string())), "{pattern}");
        assert!(!bad.chars().any(|letter| finds(pattern, &letter.to_string())), "{pattern}");
    }
    for (pattern, error) in [
        ("[]", PatternError::OpenClass),
        ("[a", PatternError::OpenClass),
        ("[a-", PatternError::OpenClass),
        ("[b-a]", PatternError::Range),
        (r"[a-\w]", PatternError::Range),
        (r"[a-\.]", PatternError::Range),
        (r"[!-\d]", PatternError::Range),
        (r"[\W]", PatternError::Escape),
        ("[a[b]", PatternError::NestedClass),
        ("[a-[b]", PatternError::NestedClass),
    ] {
        assert_eq!(Pattern::parse(pattern), Err(error), "{pattern}");
    }
}

/// An end that comes first still knows where the line began.
#[test]
fn a_line_without_a_letter_begins_and_ends_at_once() {
    assert!(finds("$^", ""));
    assert!(!finds("$^", "a"));
}

/// A syntax tree as text that both engines read the same way.
fn pattern() -> impl Strategy<Value = String> {
    let set = prop::sample::select(vec![
        "a", "b", "é", ".", r"\d", r"\W", r"\.", "[ab]", "[^a]", "[a-c5]", "[^-a]", r"[\]b]", r"[\w.]",
        "[a-]", " ",
    ]);
    let leaf =
        prop_oneof![6 => set.prop_map(str::to_owned), 1 => Just("^".to_owned()), 1 => Just("$".to_owned())];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let repeat = prop::sample::select(vec!["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| format!("({})", parts.join("|"))),
            (inner, repeat).prop_map(|(part, repeat)| format!("(?:{part}){repeat}")),
        ]
    })
}

proptest! {
    #[test]
    fn finds_what_another_engine_finds(
        (ignore_case, pattern) in (any::<bool>(), pattern()),
        lines in prop::collection::vec("[abcAB5é. -]{0,8}", 1..6),
    ) {
        let pattern = if ignore_case { format!("(?i){pattern}") } else { pattern };
        let other = regex_lite::Regex::new(&pattern).expect("both read it");
        let mut matcher = Pattern::parse(&pattern).map_err(|error| TestCaseError::fail(format!("{pattern}: {error}")))?.matcher();
        for line in lines {
            let expected = other.is_match(&line);
            prop_assert_eq!(matcher.is_match(&line), expected, "{} in {:?}", pattern, line);
            matcher.begin();
            let in_pieces = line.chars().any(|letter| matcher.advance(letter.encode_utf8(&mut [0; 4]))) || matcher.end();
            prop_assert_eq!(in_pieces, expected, "{} in pieces of {:?}", pattern, line);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in r"[ab(){}\[\]|*+?^$.\\,0-9:i-]{0,24}") {
        if let Ok(pattern) = Pattern::parse(&text) {
            pattern.matcher().is_match("ab");
        }
    }
}
