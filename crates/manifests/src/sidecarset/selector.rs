//! Label selectors. Owns what `matchLabels` and `matchExpressions` mean, as the Kubernetes API defines it.

use super::error::SidecarSetError;
use crate::yaml::Node;

/// Requirements on labels; all must hold.
#[derive(Clone, Debug)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// What is known about a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// It has this value.
    Is(&'a str),
    /// It does not exist.
    Missing,
    /// No file shows the labels.
    Unknown,
}

/// Whether labels match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// They do.
    Yes,
    /// They do not.
    No,
    /// That depends on labels that no file shows.
    Unknown,
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// An expression without a key, a label whose value is not text, an unknown operator, values for an operator that
    /// takes none, or no values for one that needs them.
    pub fn read(node: &Node) -> Result<Self, SidecarSetError> {
        let mut requirements = Vec::new();
        for (key, value) in node.get("matchLabels").map(Node::entries).unwrap_or_default() {
            let words = key.text().zip(value.text());
            let (key, value) =
                words.ok_or_else(|| SidecarSetError::at(key, "a label is a key and a text"))?;
            requirements
                .push(Requirement { key: key.to_owned(), operator: Operator::In(vec![value.to_owned()]) });
        }
        for expression in node.get("matchExpressions").map(Node::items).unwrap_or_default() {
            requirements.push(Requirement::read(expression)?);
        }
        Ok(Self { requirements })
    }

    /// Whether it has no requirements. The empty selector of a SidecarSet selects no pod.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels match; `label` returns what is known about one.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Label<'a>) -> Match {
        let mut result = Match::Yes;
        for requirement in &self.requirements {
            let found = label(&requirement.key);
            let holds = match (&requirement.operator, found) {
                (_, Label::Unknown) => {
                    result = Match::Unknown;
                    continue;
                }
                (Operator::In(values), Label::Is(value)) => values.iter().any(|one| one == value),
                (Operator::NotIn(values), Label::Is(value)) => values.iter().all(|one| one != value),
                (Operator::Exists, found) => found != Label::Missing,
                (Operator::DoesNotExist, found) => found == Label::Missing,
                (Operator::In(_), Label::Missing) => false,
                (Operator::NotIn(_), Label::Missing) => true,
            };
            if !holds {
                return Match::No;
            }
        }
        result
    }
}

impl Requirement {
    fn read(node: &Node) -> Result<Self, SidecarSetError> {
        let key =
            node.text_of("key").ok_or_else(|| SidecarSetError::at(node, "an expression needs a key"))?;
        let values: Vec<String> = node
            .get("values")
            .map(Node::items)
            .unwrap_or_default()
            .iter()
            .filter_map(Node::text)
            .map(str::to_owned)
            .collect();
        let has_values = !values.is_empty();
        let word = node.text_of("operator").unwrap_or_default();
        let operator = match word {
            "In" => Operator::In(values),
            "NotIn" => Operator::NotIn(values),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => {
                return Err(SidecarSetError::word(
                    node,
                    "operator",
                    word,
                    &["In", "NotIn", "Exists", "DoesNotExist"],
                ));
            }
        };
        if has_values != matches!(operator, Operator::In(_) | Operator::NotIn(_)) {
            let what = if has_values { "takes no values" } else { "needs values" };
            return Err(SidecarSetError::at(node, format!("the operator {word} {what}")));
        }
        Ok(Self { key: key.to_owned(), operator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::documents;

    fn read(text: &str) -> Result<Selector, SidecarSetError> {
        Selector::read(&documents(text).expect("YAML").remove(0).root)
    }

    #[test]
    fn expressions_mean_what_the_api_says() {
        let label = |key: &str| match key {
            "app" => Label::Is("web"),
            "secret" => Label::Unknown,
            _ => Label::Missing,
        };
        for (expression, expected) in [
            ("{key: app, operator: In, values: [shop, web]}", Match::Yes),
            ("{key: app, operator: In, values: [shop]}", Match::No),
            ("{key: app, operator: NotIn, values: [web]}", Match::No),
            ("{key: tier, operator: NotIn, values: [web]}", Match::Yes),
            ("{key: tier, operator: In, values: [web]}", Match::No),
            ("{key: app, operator: Exists}", Match::Yes),
            ("{key: tier, operator: Exists}", Match::No),
            ("{key: tier, operator: DoesNotExist}", Match::Yes),
            ("{key: app, operator: DoesNotExist}", Match::No),
            ("{key: secret, operator: Exists}", Match::Unknown),
        ] {
            let selector = read(&format!("matchExpressions: [{expression}]")).expect("a selector");
            assert_eq!(selector.matches(label), expected, "{expression}");
        }
        let all = read("{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}");
        assert_eq!(all.expect("a selector").matches(label), Match::No);
        let one = read("{matchLabels: {app: shop}, matchExpressions: [{key: secret, operator: Exists}]}");
        assert_eq!(one.expect("a selector").matches(label), Match::No, "what is known suffices");
    }

    #[test]
    fn wrong_expressions_are_refused() {
        for expression in [
            "{operator: Exists}",
            "{key: app, operator: Is, values: [web]}",
            "{key: app, operator: In}",
            "{key: app, operator: Exists, values: [web]}",
        ] {
            assert!(read(&format!("matchExpressions: [{expression}]")).is_err(), "{expression}");
        }
        assert!(read("matchLabels: {app: {}}").is_err());
    }
}
