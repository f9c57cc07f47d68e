//! A ValidatingAdmissionPolicy of dist/kubernetes as an API server evaluates it. An expression that fails denies, as
//! `failurePolicy: Fail` says.

use std::collections::HashMap;
use std::sync::Arc;

use cel::{Context, Env, Value as Cel};
use manifests::yaml::Node;
use serde_json::{Value, json};

use super::{Part, objects_of};

#[derive(Debug, PartialEq)]
pub enum Answer {
    /// The policy is not for this request.
    Unasked,
    Allowed,
    /// The message of the first rule that is not kept.
    Denied(String),
    /// The text of an expression that fails.
    Failed(String),
}

/// What a request asks for.
pub struct Request {
    /// The policy's name.
    pub policy: &'static str,
    pub user: Value,
    pub operation: &'static str,
    pub subresource: Option<&'static str>,
    pub before: Value,
    pub after: Value,
}

impl Request {
    pub fn answer(&self) -> Answer {
        let objects = objects_of(&[Part::Installer, Part::Agent]);
        let is_named =
            |object: &Node| object.at(&["metadata", "name"]).and_then(Node::text) == Some(self.policy);
        let is_it =
            |(kind, object): &&(String, Node)| kind == "ValidatingAdmissionPolicy" && is_named(object);
        let (_, policy) = objects.iter().find(is_it).expect("the policy");
        assert_eq!(policy.at(&["spec", "failurePolicy"]).and_then(Node::text), Some("Fail"));
        let entries = |key: &str| policy.at(&["spec", key]).expect("a list").items();
        let text = |entry: &Node, key: &str| entry.text_of(key).expect("a text").to_owned();
        let env = Arc::new(Env::stdlib());
        let mut context = Context::with_env(Arc::clone(&env));
        let named = [&self.after, &self.before].into_iter().find_map(|it| it["metadata"]["name"].as_str());
        let mut request = json!({"name": named, "operation": self.operation, "userInfo": self.user});
        if let Some(subresource) = self.subresource {
            request["subResource"] = json!(subresource);
        }
        for (name, value) in [("request", &request), ("object", &self.after), ("oldObject", &self.before)] {
            context.add_variable_from_value(name, cel::to_value(value).expect("a CEL value"));
        }
        let evaluate = |entry: &Node, context: &Context<'_, '_>| {
            let expression = text(entry, "expression");
            let program = env.compile(&expression).unwrap_or_else(|error| panic!("{error}\n{expression}"));
            program.execute(context).map_err(|error| Answer::Failed(format!("{expression}: {error}")))
        };
        for condition in entries("matchConditions") {
            match evaluate(condition, &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Answer::Unasked,
                Err(failed) => return failed,
            }
        }
        // A variable sees those before it.
        let mut variables: HashMap<String, Cel> = HashMap::new();
        for variable in entries("variables") {
            context.add_variable_from_value("variables", Cel::from(variables.clone()));
            match evaluate(variable, &context) {
                Ok(value) => variables.insert(text(variable, "name"), value),
                Err(failed) => return failed,
            };
        }
        context.add_variable_from_value("variables", Cel::from(variables));
        for rule in entries("validations") {
            match evaluate(rule, &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Answer::Denied(text(rule, "message")),
                Err(failed) => return failed,
            }
        }
        Answer::Allowed
    }

    #[track_caller]
    pub fn is_denied(&self, message: &str) {
        assert_eq!(self.answer(), Answer::Denied(message.to_owned()));
    }
}
