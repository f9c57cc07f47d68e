//! What an API server does with dist/policy: evaluates the conditions, the variables and the patch on a pod, and applies
//! the patch. The functions that Kubernetes adds to CEL are registered here, and no others.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cel::common::types::{self, CelInt, CelList, CelString, CelStruct, Type};
use cel::common::value::{CowVal, Val};
use cel::{Context, Env, ExecutionError, IdedExpr, StructType, Value as Cel};
use manifests::yaml::{Node, Value as Yaml, documents};
use serde_json::{Map, Value, json};

/// dist/policy.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/policy")
}

/// The objects of a file of dist/policy.
pub fn objects(file: &str) -> Vec<Node> {
    let text = fs::read_to_string(directory().join(file)).expect("a file");
    documents(&text).expect("YAML").into_iter().map(|document| document.root).collect()
}

/// The policy's expressions.
pub struct Policy {
    env: Arc<Env>,
    pub conditions: Vec<(String, String)>,
    pub variables: Vec<(String, String)>,
    pub mutation: String,
}

/// One operation of the patch, which are all `add`.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    pub path: String,
    pub value: Value,
}

/// What the policy does with a pod.
#[derive(Debug, PartialEq)]
pub enum Admitted {
    /// The first condition that is false.
    Skipped(String),
    Patched(Vec<Add>),
}

impl Policy {
    pub fn read() -> Self {
        Self::of("policy.yaml")
    }

    pub fn of(file: &str) -> Self {
        let policy = objects(file).remove(0);
        let named = |key: &str| {
            let entries = policy.at(&["spec", key]).map(Node::items).unwrap_or_default().iter();
            let text = |entry: &Node, key| entry.text_of(key).expect("a text").to_owned();
            entries.map(|entry| (text(entry, "name"), text(entry, "expression"))).collect::<Vec<_>>()
        };
        let [mutation] = policy.at(&["spec", "mutations"]).expect("mutations").items() else {
            panic!("one mutation")
        };
        assert_eq!(mutation.text_of("patchType"), Some("JSONPatch"));
        let mutation =
            mutation.at(&["jsonPatch", "expression"]).and_then(Node::text).expect("a patch").to_owned();
        Self { env: env(), conditions: named("matchConditions"), variables: named("variables"), mutation }
    }

    /// An expression with its macros expanded.
    pub fn compile(&self, expression: &str) -> IdedExpr {
        let program = self.env.compile(expression).unwrap_or_else(|error| panic!("{error}\n{expression}"));
        program.expression().clone()
    }

    /// Evaluates the policy on a pod as the API server has it, and changes the pod.
    pub fn admit(&self, pod: &mut Value) -> Admitted {
        let object = cel::to_value(&*pod).expect("a CEL value");
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("object", object.clone());
        for (name, expression) in &self.conditions {
            match self.evaluate(expression, &context) {
                Cel::Bool(true) => {}
                Cel::Bool(false) => return Admitted::Skipped(name.clone()),
                other => panic!("{name}: {other:?}"),
            }
        }
        // `variables` does not exist for a condition, and a variable sees those before it.
        let mut variables: HashMap<String, Cel> = HashMap::new();
        for (name, expression) in &self.variables {
            context.add_variable_from_value("variables", Cel::from(variables.clone()));
            variables.insert(name.clone(), self.evaluate(expression, &context));
        }
        context.add_variable_from_value("variables", Cel::from(variables));
        let Cel::List(operations) = self.evaluate(&self.mutation, &context) else { panic!("no list") };
        let patch: Vec<Add> = operations.iter().map(operation).collect();
        patch.iter().for_each(|add| apply(pod, add));
        Admitted::Patched(patch)
    }

    fn evaluate(&self, expression: &str, context: &Context<'_, '_>) -> Cel {
        let program = self.env.compile(expression).unwrap_or_else(|error| panic!("{error}\n{expression}"));
        program.execute(context).unwrap_or_else(|error| panic!("{error}\n{expression}"))
    }
}

/// The type of an operation. `value` may be anything, and a `StructDef` has no such field.
struct JsonPatch(Type);

impl StructType for JsonPatch {
    fn get_type(&self) -> &Type {
        &self.0
    }

    fn new_value<'v>(
        &self,
        fields: BTreeMap<String, CowVal<'_, 'v>>,
    ) -> Result<Box<dyn Val + 'v>, ExecutionError> {
        let mut operation = CelStruct::new(self.0.name().to_owned());
        for (name, value) in fields {
            assert!(["op", "path", "value"].contains(&name.as_str()), "{name}");
            operation.add_field_value(name, value);
        }
        Ok(Box::new(operation))
    }
}

fn env() -> Arc<Env> {
    let mut env = Env::stdlib();
    let string = || types::STRING_TYPE;
    env.add_type(JsonPatch(Type::new_struct("JSONPatch".to_owned()))).expect("a type");
    env.add_overload("jsonpatch.escapeKey", "jsonpatch_escape_key", vec![string()], |args| {
        let key = args[0].downcast_ref::<CelString<'_>>().expect("a string").inner();
        Ok(CowVal::owned(CelString::from(key.replace('~', "~0").replace('/', "~1"))))
    })
    .expect("a function");
    env.add_member_overload(
        "replace",
        "string_replace",
        types::STRING_TYPE,
        vec![string(), string()],
        |args| {
            let text = |place: usize| args[place].downcast_ref::<CelString<'_>>().expect("a string").inner();
            Ok(CowVal::owned(CelString::from(text(0).replace(text(1), text(2)))))
        },
    )
    .expect("a function");
    env.add_member_overload("join", "list_join", types::LIST_TYPE, vec![string()], |args| {
        let list = args[0].downcast_ref::<CelList<'_>>().expect("a list").inner();
        let between = args[1].downcast_ref::<CelString<'_>>().expect("a string").inner();
        let texts = list
            .iter()
            .map(|item| item.downcast_ref::<CelString<'_>>().expect("a string").inner().to_owned());
        Ok(CowVal::owned(CelString::from(texts.collect::<Vec<_>>().join(between))))
    })
    .expect("a function");
    env.add_member_overload("sum", "list_sum", types::LIST_TYPE, vec![], |args| {
        let list = args[0].downcast_ref::<CelList<'_>>().expect("a list").inner();
        let sum =
            list.iter().map(|item| *item.downcast_ref::<CelInt>().expect("a number").inner()).sum::<i64>();
        Ok(CowVal::owned(CelInt::from(sum)))
    })
    .expect("a function");
    env.add_member_overload("indexOf", "list_index_of", types::LIST_TYPE, vec![string()], |args| {
        let list = args[0].downcast_ref::<CelList<'_>>().expect("a list").inner();
        let text = args[1].downcast_ref::<CelString<'_>>().expect("a string").inner();
        let is_it = |item: &CelString<'_>| item.inner() == text;
        let place = list.iter().position(|item| item.downcast_ref::<CelString<'_>>().is_some_and(is_it));
        let place = place.map_or(-1, |place| i64::try_from(place).expect("a short list"));
        Ok(CowVal::owned(CelInt::from(place)))
    })
    .expect("a function");
    Arc::new(env)
}

fn operation(value: &Cel) -> Add {
    let Cel::Struct(operation) = value else { panic!("{value:?}") };
    assert_eq!(operation.name(), "JSONPatch");
    let field = |name: &str| {
        let field = operation.field_value(name).unwrap_or_else(|| panic!("no {name}"));
        json_value(&Cel::try_from(field).expect("a value"))
    };
    assert_eq!(field("op"), "add");
    Add { path: field("path").as_str().expect("a path").to_owned(), value: field("value") }
}

fn json_value(value: &Cel) -> Value {
    match value {
        Cel::String(text) => Value::from(text.as_str()),
        Cel::List(list) => list.iter().map(json_value).collect(),
        Cel::Map(map) => map.map.iter().map(|(key, value)| (key.to_string(), json_value(value))).collect(),
        other => panic!("{other:?}"),
    }
}

/// RFC 6902: `add` needs the object or the list that it adds to; `-` is the end of a list.
fn apply(pod: &mut Value, add: &Add) {
    let (parent, key) = add.path.rsplit_once('/').expect("a path");
    let parent = pod.pointer_mut(parent).unwrap_or_else(|| panic!("{}: no parent", add.path));
    if key == "-" {
        return parent.as_array_mut().expect("a list").push(add.value.clone());
    }
    let key = key.replace("~1", "/").replace("~0", "~");
    parent.as_object_mut().expect("an object").insert(key, add.value.clone());
}

/// A pod of a manifest as the API server has it when it evaluates a policy: without empty fields, and with the defaults
/// that the policy looks at.
pub fn pod(template: &Node) -> Value {
    let mut pod = json_of(template);
    if pod["metadata"]["annotations"].as_object().is_some_and(Map::is_empty) {
        pod["metadata"].as_object_mut().expect("metadata").remove("annotations");
    }
    if pod.get("metadata").is_none() {
        pod["metadata"] = json!({});
    }
    if pod["spec"].get("restartPolicy").is_none() {
        pod["spec"]["restartPolicy"] = json!("Always");
    }
    pod
}

pub fn json_of(node: &Node) -> Value {
    match &node.value {
        Yaml::Sequence(_, items) => items.iter().map(json_of).collect(),
        Yaml::Mapping(_, entries) => {
            let mut object = Map::new();
            let is_merge = |entry: &&(Node, Node)| entry.0.text() == Some("<<");
            for (_, merged) in entries.iter().filter(is_merge) {
                object.extend(json_of(merged).as_object().expect("a mapping").clone());
            }
            for (key, value) in entries.iter().filter(|entry| !is_merge(entry) && !entry.1.is_null()) {
                object.insert(key.text().expect("a key").to_owned(), json_of(value));
            }
            Value::Object(object)
        }
        Yaml::Scalar(scalar) if !node.is_string() => {
            serde_json::from_str(&scalar.text).unwrap_or_else(|_| Value::from(scalar.text.as_str()))
        }
        Yaml::Scalar(scalar) => Value::from(scalar.text.as_str()),
    }
}
