//! The text that a caller has read, with the name of its file.

/// A text and the name of its file.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as it was given; `-` is standard input.
    pub name: String,
    /// The whole text.
    pub text: String,
}
