//! What an expression of dist/policy costs in an API server: a small interpreter of CEL that counts as the one of Kubernetes does.
//! Owns the prices (`interpreter/runtimecost.go` of cel-go, `cel/library/cost.go` of Kubernetes 1.36). Where those charge a
//! part of an expression less, as they do in a `?:`, it charges the whole: what it counts is never too little.

use std::collections::BTreeMap;
use std::rc::Rc;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::Value as Json;

/// What one expression may cost: `PerCallLimit` of the API server.
pub const LIMIT_OF_ONE: u64 = 1_000_000;
/// What the conditions may cost together: `RuntimeCELCostBudgetMatchConditions`.
pub const LIMIT_OF_CONDITIONS: u64 = 2_500_000;
/// What the patch may cost with all variables that it needs: `RuntimeCELCostBudget`.
pub const LIMIT_OF_PATCH: u64 = 10_000_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Text(Rc<str>),
    List(Rc<Vec<Value>>),
    Map(Rc<BTreeMap<String, Value>>),
}

impl Value {
    pub fn of(json: &Json) -> Self {
        match json {
            Json::Bool(is) => Self::Bool(*is),
            Json::Number(number) => Self::Int(number.as_i64().expect("a whole number")),
            Json::String(text) => Self::Text(text.as_str().into()),
            Json::Array(items) => Self::List(Rc::new(items.iter().map(Self::of).collect())),
            Json::Object(entries) => Self::Map(Rc::new(
                entries.iter().map(|(key, value)| (key.clone(), Self::of(value))).collect(),
            )),
            Json::Null => panic!("an API server has no null"),
        }
    }

    pub fn json(&self) -> Json {
        match self {
            Self::Bool(is) => Json::from(*is),
            Self::Int(number) => Json::from(*number),
            Self::Text(text) => Json::from(&**text),
            Self::List(items) => items.iter().map(Self::json).collect(),
            Self::Map(entries) => {
                Json::Object(entries.iter().map(|(key, value)| (key.clone(), value.json())).collect())
            }
        }
    }

    fn is_true(&self) -> bool {
        let Self::Bool(is) = self else { panic!("no boolean: {self:?}") };
        *is
    }

    fn text(&self) -> &str {
        let Self::Text(text) = self else { panic!("no text: {self:?}") };
        text
    }

    fn int(&self) -> i64 {
        let Self::Int(number) = self else { panic!("no number: {self:?}") };
        *number
    }

    fn items(&self) -> &[Value] {
        let Self::List(items) = self else { panic!("no list: {self:?}") };
        items
    }

    fn entries(&self) -> &BTreeMap<String, Value> {
        let Self::Map(entries) = self else { panic!("no map: {self:?}") };
        entries
    }

    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.chars().count(),
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            Self::Bool(_) | Self::Int(_) => 1,
        }
    }

    /// What it costs to look at all of it.
    fn traversal(&self) -> u64 {
        match self {
            Self::Text(text) => count(text.len() / 10),
            Self::List(items) => items.iter().map(Self::traversal).sum(),
            Self::Map(entries) => entries.values().map(Self::traversal).sum(),
            Self::Bool(_) | Self::Int(_) => 1,
        }
    }
}

fn count(size: usize) -> u64 {
    u64::try_from(size).expect("a size")
}

/// A tenth for each letter.
fn of_letters(letters: usize) -> u64 {
    count(letters.div_ceil(10))
}

/// An evaluation: the variables of comprehensions, those of the policy, which are evaluated when they are first asked for, and what
/// all of it has cost.
pub struct Evaluation<'a> {
    object: Value,
    expressions: &'a BTreeMap<String, IdedExpr>,
    known: BTreeMap<String, Value>,
    local: Vec<(String, Value)>,
    cost: u64,
    /// What each variable of the policy cost by itself, with the expression that began it all as the last.
    pub costs: Vec<(String, u64)>,
}

impl<'a> Evaluation<'a> {
    pub fn new(object: &Json, expressions: &'a BTreeMap<String, IdedExpr>) -> Self {
        let (known, local, costs) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { object: Value::of(object), expressions, known, local, cost: 0, costs }
    }

    /// The value of an expression. Its cost is the last one of `costs`.
    pub fn run(&mut self, name: &str, expression: &IdedExpr) -> Value {
        // A variable of the policy sees none of the comprehension that asks for it.
        let local = std::mem::take(&mut self.local);
        let cost = std::mem::replace(&mut self.cost, 0);
        let value = self.value(expression);
        self.costs.push((name.to_owned(), std::mem::replace(&mut self.cost, cost)));
        self.local = local;
        value
    }

    fn value(&mut self, expression: &IdedExpr) -> Value {
        match &expression.expr {
            Expr::Literal(literal) => constant(literal),
            Expr::Ident(name) => {
                self.cost += 1;
                let local = self.local.iter().rev().find(|(own, _)| own == name);
                local.map_or_else(|| self.object_of(name), |(_, value)| value.clone())
            }
            Expr::Select(select) => {
                // `has` costs what its operand does.
                self.cost += u64::from(!select.test);
                if matches!(&select.operand.expr, Expr::Ident(name) if name == "variables") {
                    self.cost += 1;
                    return self.variable(&select.field);
                }
                let operand = self.value(&select.operand);
                let field = operand.entries().get(&select.field);
                match field {
                    _ if select.test => Value::Bool(field.is_some()),
                    Some(value) => value.clone(),
                    None => panic!("no {} in {operand:?}", select.field),
                }
            }
            Expr::List(list) => {
                self.cost += 10;
                Value::List(Rc::new(list.elements.iter().map(|element| self.value(element)).collect()))
            }
            Expr::Map(map) => {
                self.cost += 30;
                self.entries(map.entries.iter().map(|entry| &entry.expr))
            }
            Expr::Struct(made) => {
                self.cost += 40;
                self.entries(made.entries.iter().map(|entry| &entry.expr))
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(fold) => {
                let range = self.value(&fold.iter_range);
                let items = match &range {
                    Value::Map(entries) => {
                        entries.keys().map(|key| Value::Text(key.as_str().into())).collect()
                    }
                    range => range.items().to_vec(),
                };
                let begin = self.value(&fold.accu_init);
                self.local.push((fold.accu_var.clone(), begin));
                let accu = self.local.len() - 1;
                for item in items {
                    self.local.push((fold.iter_var.clone(), item));
                    if !self.value(&fold.loop_cond).is_true() {
                        self.local.pop();
                        break;
                    }
                    let next = self.value(&fold.loop_step);
                    self.local.pop();
                    self.local[accu].1 = next;
                }
                let result = self.value(&fold.result);
                self.local.pop();
                result
            }
            Expr::Unspecified => panic!("no expression"),
        }
    }

    fn object_of(&self, name: &str) -> Value {
        assert_eq!(name, "object");
        self.object.clone()
    }

    fn variable(&mut self, name: &str) -> Value {
        if let Some(value) = self.known.get(name) {
            return value.clone();
        }
        let expressions = self.expressions;
        let expression = expressions.get(name).unwrap_or_else(|| panic!("no variable {name}"));
        let value = self.run(name, expression);
        self.known.insert(name.to_owned(), value.clone());
        value
    }

    fn entries<'e>(&mut self, entries: impl Iterator<Item = &'e EntryExpr>) -> Value {
        let entry = |entry: &EntryExpr| match entry {
            EntryExpr::StructField(field) => (field.field.clone(), self.value(&field.value)),
            EntryExpr::MapEntry(entry) => {
                (self.value(&entry.key).text().to_owned(), self.value(&entry.value))
            }
        };
        Value::Map(Rc::new(entries.map(entry).collect()))
    }

    fn call(&mut self, call: &CallExpr) -> Value {
        let operands: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        match call.func_name.as_str() {
            operators::LOGICAL_AND => {
                Value::Bool(self.value(operands[0]).is_true() && self.value(operands[1]).is_true())
            }
            operators::LOGICAL_OR => {
                Value::Bool(self.value(operands[0]).is_true() || self.value(operands[1]).is_true())
            }
            operators::CONDITIONAL => {
                let chosen = if self.value(operands[0]).is_true() { 1 } else { 2 };
                self.value(operands[chosen])
            }
            // `jsonpatch` is no value.
            "escapeKey" => {
                let key = self.value(operands[1]);
                self.cost += of_letters(key.size());
                Value::Text(key.text().replace('~', "~0").replace('/', "~1").into())
            }
            name => {
                let values: Vec<Value> = operands.iter().map(|operand| self.value(operand)).collect();
                let result = function(name, &values);
                self.cost += price(name, &values, &result);
                result
            }
        }
    }
}

fn constant(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(is) => Value::Bool(*is.inner()),
        LiteralValue::Int(number) => Value::Int(*number.inner()),
        LiteralValue::String(text) => Value::Text(text.inner().into()),
        other => panic!("{other:?}"),
    }
}

fn function(name: &str, values: &[Value]) -> Value {
    let text = |text: &str| Value::Text(text.into());
    match (name, values) {
        (operators::LOGICAL_NOT, [is]) => Value::Bool(!is.is_true()),
        (operators::NOT_STRICTLY_FALSE, [is]) => is.clone(),
        (operators::ADD, [Value::Text(left), Value::Text(right)]) => text(&format!("{left}{right}")),
        (operators::ADD, [Value::List(left), Value::List(right)]) => {
            Value::List(Rc::new(left.iter().chain(&**right).cloned().collect()))
        }
        (operators::ADD, [left, right]) => Value::Int(left.int() + right.int()),
        (operators::SUBSTRACT, [left, right]) => Value::Int(left.int() - right.int()),
        (operators::EQUALS, [left, right]) => Value::Bool(left == right),
        (operators::NOT_EQUALS, [left, right]) => Value::Bool(left != right),
        (operators::LESS, [left, right]) => Value::Bool(left.int() < right.int()),
        (operators::LESS_EQUALS, [left, right]) => Value::Bool(left.int() <= right.int()),
        (operators::GREATER, [left, right]) => Value::Bool(left.int() > right.int()),
        (operators::IN, [item, Value::Map(entries)]) => Value::Bool(entries.contains_key(item.text())),
        (operators::IN, [item, list]) => Value::Bool(list.items().contains(item)),
        (operators::INDEX, [Value::Map(entries), key]) => entries[key.text()].clone(),
        (operators::INDEX, [list, place]) => {
            list.items()[usize::try_from(place.int()).expect("a place")].clone()
        }
        ("size", [value]) => Value::Int(i64::try_from(value.size()).expect("a size")),
        ("string", [Value::Int(number)]) => text(&number.to_string()),
        ("string", [value]) => value.clone(),
        ("startsWith", [value, begin]) => Value::Bool(value.text().starts_with(begin.text())),
        ("contains", [value, part]) => Value::Bool(value.text().contains(part.text())),
        ("replace", [value, from, to]) => text(&value.text().replace(from.text(), to.text())),
        ("sum", [list]) => Value::Int(list.items().iter().map(Value::int).sum()),
        ("join", [list, between]) => {
            text(&list.items().iter().map(Value::text).collect::<Vec<_>>().join(between.text()))
        }
        ("indexOf", [list, item]) => {
            let place = list.items().iter().position(|own| own == item);
            Value::Int(place.map_or(-1, |place| i64::try_from(place).expect("a place")))
        }
        other => panic!("{other:?}"),
    }
}

fn price(name: &str, values: &[Value], result: &Value) -> u64 {
    match (name, values) {
        (operators::ADD, [Value::Text(_), Value::Text(_)]) => of_letters(values[0].size() + values[1].size()),
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
            of_letters(left.size().min(right.size()))
        }
        (operators::IN, [_, Value::List(items)]) => count(items.len()),
        ("startsWith", _) => of_letters(values[0].size()),
        ("contains", _) => of_letters(values[0].size()) * of_letters(values[1].size()),
        ("replace", _) => count(values[0].size().div_ceil(5)),
        ("join", _) => count(result.size().div_ceil(5)),
        ("indexOf" | "sum", _) => values[0].traversal(),
        _ => 1,
    }
}
