//! Commands as annotations write them: a JSON array of strings, or words that are split as a shell splits them, but
//! with nothing expanded. Owns where a command ends (`;` begins the probe's options). Never runs anything.

/// Why a text is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No word, or an empty first one.
    #[error("the command is empty")]
    Empty,
    /// A quote without its end.
    #[error("the quote {quote} is never closed")]
    UnclosedQuote {
        /// The quote's character.
        quote: char,
    },
    /// A backslash with nothing to quote.
    #[error("the backslash at the end quotes nothing")]
    TrailingBackslash,
    /// It begins with `[` and is no JSON array of strings.
    #[error("not a JSON array of strings: {reason} (for the program \"[\" write \"test\")")]
    Json {
        /// What the JSON parser found.
        reason: String,
    },
    /// Text after the array's end that is no option.
    #[error("the JSON array is followed by more text (options begin with \";\")")]
    AfterArray,
    /// A NUL byte, which the kernel cannot pass to a program.
    #[error("an argument contains a NUL byte")]
    Nul,
    /// A bare `;` where no options are allowed: no shell reads the command.
    #[error("quote the \";\": no shell reads this command (or write sh -c '...')")]
    BareSemicolon,
}

/// Reads a command up to its end or a `;` outside quotes; returns the argument vector and what follows that
/// `;`, if there is one.
pub(crate) fn parse(text: &str) -> Result<(Vec<String>, Option<&str>), CommandError> {
    let text = text.trim_start();
    let (arguments, rest) = if text.starts_with('[') { json(text)? } else { words(text)? };
    if arguments.first().is_none_or(String::is_empty) {
        return Err(CommandError::Empty);
    }
    if arguments.iter().any(|argument| argument.contains('\0')) {
        return Err(CommandError::Nul);
    }
    Ok((arguments, rest))
}

/// A command with nothing after it, as in hooks.
pub(crate) fn parse_whole(text: &str) -> Result<Vec<String>, CommandError> {
    match parse(text)? {
        (arguments, None) => Ok(arguments),
        (_, Some(_)) => Err(CommandError::BareSemicolon),
    }
}

fn json(text: &str) -> Result<(Vec<String>, Option<&str>), CommandError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Vec<String>>();
    let arguments = match values.next() {
        Some(Ok(arguments)) => arguments,
        Some(Err(error)) => return Err(CommandError::Json { reason: error.to_string() }),
        None => return Err(CommandError::Empty),
    };
    let rest = text.get(values.byte_offset()..).unwrap_or_default().trim_start();
    match rest.strip_prefix(';') {
        Some(options) => Ok((arguments, Some(options))),
        None if rest.is_empty() => Ok((arguments, None)),
        None => Err(CommandError::AfterArray),
    }
}

fn words(text: &str) -> Result<(Vec<String>, Option<&str>), CommandError> {
    let mut words = Vec::new();
    // `None` between words: an empty pair of quotes is a word too.
    let mut word: Option<String> = None;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            ';' => {
                words.extend(word);
                return Ok((words, text.get(at + 1..)));
            }
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                quoted(letter, &mut letters, word)?;
            }
            '\\' => {
                let (_, next) = letters.next().ok_or(CommandError::TrailingBackslash)?;
                word.get_or_insert_default().push(next);
            }
            _ if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok((words, None))
}

/// Reads up to the closing quote. Within `"` a backslash quotes only what it quotes in a POSIX shell.
fn quoted(
    quote: char,
    letters: &mut std::str::CharIndices<'_>,
    word: &mut String,
) -> Result<(), CommandError> {
    let unclosed = CommandError::UnclosedQuote { quote };
    loop {
        let (_, letter) = letters.next().ok_or_else(|| unclosed.clone())?;
        if letter == quote {
            return Ok(());
        }
        if letter != '\\' || quote == '\'' {
            word.push(letter);
            continue;
        }
        let (_, next) = letters.next().ok_or_else(|| unclosed.clone())?;
        if !matches!(next, '"' | '\\' | '$' | '`') {
            word.push('\\');
        }
        word.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_like_a_shell_without_expansion() {
        for (text, expected) in [
            ("true", &["true"][..]),
            ("  test  -f\t/tmp/x  ", &["test", "-f", "/tmp/x"]),
            (r#"sh -c 'a; b "c"'"#, &["sh", "-c", r#"a; b "c""#]),
            (r#"echo "a b" c\ d"#, &["echo", "a b", "c d"]),
            (r#"echo "a\"b\\c\$d\n""#, &["echo", r#"a"b\c$d\n"#]),
            (r"echo '\n' a\;b", &["echo", r"\n", "a;b"]),
            (r#"echo a"b"'c'd"#, &["echo", "abcd"]),
            (r#"echo "" ''"#, &["echo", "", ""]),
            ("echo $HOME `id` *.c | cat", &["echo", "$HOME", "`id`", "*.c", "|", "cat"]),
            (r#"["sh", "-c", "a; b\u0041"]"#, &["sh", "-c", "a; bA"]),
            (r#" [ "a" ] "#, &["a"]),
        ] {
            assert_eq!(parse(text), Ok((expected.iter().map(ToString::to_string).collect(), None)), "{text}");
        }
    }

    #[test]
    fn the_first_bare_semicolon_ends_the_command() {
        for text in ["a b;period=1s", "a 'b';period=1s", r#"["a","b"];period=1s"#, r#"["a","b"] ;period=1s"#]
        {
            let expected = (vec!["a".to_owned(), "b".to_owned()], Some("period=1s"));
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_wrong_command_says_why() {
        for (text, error) in [
            ("", CommandError::Empty),
            ("  ", CommandError::Empty),
            (";ok=1", CommandError::Empty),
            ("'' a", CommandError::Empty),
            ("[]", CommandError::Empty),
            (r#"["", "a"]"#, CommandError::Empty),
            ("echo 'a", CommandError::UnclosedQuote { quote: '\'' }),
            (r#"echo "a"#, CommandError::UnclosedQuote { quote: '"' }),
            (r#"echo "a\"#, CommandError::UnclosedQuote { quote: '"' }),
            (r"echo a\", CommandError::TrailingBackslash),
            (r#"["a"] b"#, CommandError::AfterArray),
            (r#"["a\u0000"]"#, CommandError::Nul),
            ("a\0", CommandError::Nul),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        for text in ["[ -f /x ]", r#"["a", 1]"#, r#"["a""#, "[[]]"] {
            assert!(matches!(parse(text), Err(CommandError::Json { .. })), "{text}");
        }
        assert_eq!(parse_whole("a; b"), Err(CommandError::BareSemicolon));
    }
}
