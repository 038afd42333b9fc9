//! Checks an expression before it is ever used: every name, every type, and what it can cost at most. While it
//! walks, it replaces each name by its place in the table, so that nothing is looked up by text later.

use cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, SelectExpr, operators,
    },
};
use regex::Regex;

use super::{
    calls,
    facts::{Kind, Reads, VARIABLES, place_of},
    scan::TOO_DEEP,
};
use crate::config::meant;

/// How deep the tree of an expression may be.
const DEEPEST: usize = 32;

/// How many steps an evaluation may take.
const MOST_STEPS: usize = 1_000;

/// The roots of names; those that have no fields are values themselves.
const ROOTS: [&str; 7] = ["intent", "identity", "agent", "pool", "forecast", "cost", "time"];

/// What an expression gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    One(Kind),
    /// A list; of an empty one it is not known of what.
    List(Option<Kind>),
}

pub(crate) const BOOL: Type = Type::One(Kind::Bool);
pub(crate) const INT: Type = Type::One(Kind::Int);
pub(crate) const DOUBLE: Type = Type::One(Kind::Double);
pub(crate) const TEXT: Type = Type::One(Kind::Text);

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(kind) => f.write_str(kind.as_str()),
            Self::List(Some(kind)) => write!(f, "list of {}", kind.as_str()),
            Self::List(None) => f.write_str("empty list"),
        }
    }
}

/// What is wrong with a part of an expression.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// The part.
    pub(crate) node: u64,
    /// A name to look for from there on, where it stands behind that.
    pub(crate) name: Option<String>,
    /// What, and what to do.
    pub(crate) problem: String,
}

pub(crate) fn wrong<T>(node: u64, problem: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { node, name: None, problem: problem.into() })
}

/// What was found out about an expression.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// The names that it reads or asks for.
    pub(crate) reads: Reads,
    /// Its patterns, ready to be used.
    pub(crate) patterns: Vec<Regex>,
    /// The whole numbers in it: where it may behave otherwise than elsewhere.
    pub(crate) numbers: Vec<i64>,
    /// How many steps it takes at most.
    pub(crate) steps: usize,
    /// The name that stands for an element of a list, inside `exists` and its like.
    element: Option<(String, Kind)>,
}

/// Checks the expression, and replaces its names.
pub(crate) fn check(expression: &mut IdedExpr) -> Result<Checked, Wrong> {
    let mut checked = Checked::default();
    let found = checked.walk(expression, 0)?;
    if found != BOOL {
        let problem = format!("is {}; a condition is true or false", a(found));
        return wrong(expression.id, problem);
    }
    Ok(checked)
}

/// The type with its article.
pub(crate) fn a(found: Type) -> String {
    let article = if matches!(found, INT | Type::List(None)) { "an" } else { "a" };
    format!("{article} {found}")
}

impl Checked {
    pub(crate) fn walk(&mut self, node: &mut IdedExpr, depth: usize) -> Result<Type, Wrong> {
        let id = node.id;
        if depth > DEEPEST {
            return wrong(id, TOO_DEEP);
        }
        self.spend(id, 1)?;
        match &mut node.expr {
            Expr::Literal(literal) => self.literal(id, literal),
            Expr::Ident(name) => {
                let (name, found) = self.ident(id, name)?;
                node.expr = Expr::Ident(name);
                Ok(found)
            }
            Expr::Select(select) => {
                let (name, found) = self.select(id, select)?;
                node.expr = Expr::Ident(name);
                Ok(found)
            }
            Expr::Call(call) => calls::check(self, id, call, depth),
            Expr::List(list) => self.list(id, list, depth),
            Expr::Comprehension(each) => self.each(id, each, depth),
            Expr::Map(_) => wrong(id, "is a map; only lists are known here: ['a', 'b']"),
            Expr::Struct(_) => wrong(id, "makes an object; only values and lists are known here"),
            Expr::Unspecified => wrong(id, "is empty"),
        }
    }

    /// Counts steps, up to the bound.
    pub(crate) fn spend(&mut self, id: u64, steps: usize) -> Result<(), Wrong> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MOST_STEPS {
            let problem = format!(
                "takes more than {MOST_STEPS} steps; shorten its lists, or write several rules"
            );
            return wrong(id, problem);
        }
        Ok(())
    }

    fn literal(&mut self, id: u64, literal: &LiteralValue) -> Result<Type, Wrong> {
        match literal {
            LiteralValue::Boolean(_) => Ok(BOOL),
            LiteralValue::Int(number) => {
                self.numbers.push(*number.inner());
                Ok(INT)
            }
            LiteralValue::Double(_) => Ok(DOUBLE),
            LiteralValue::String(_) => Ok(TEXT),
            LiteralValue::UInt(_) => wrong(id, "is an unsigned number; write it without the `u`"),
            LiteralValue::Bytes(_) => wrong(id, "is bytes; write a text without the `b`"),
            LiteralValue::Null => {
                wrong(id, "`null` is no value here; `has(pool.limit)` asks whether it is known")
            }
        }
    }

    fn ident(&mut self, id: u64, name: &str) -> Result<(String, Type), Wrong> {
        if let Some((element, kind)) = &self.element
            && element == name
        {
            return Ok((name.to_owned(), Type::One(*kind)));
        }
        if let Some(place) = place_of(name) {
            return Ok(self.read(place, '#'));
        }
        if ROOTS.contains(&name) {
            let fields = meant("", fields_of(name));
            return wrong(
                id,
                format!("`{name}` is no value by itself; read a field of it{fields}"),
            );
        }
        let near = meant(name, ROOTS.into_iter());
        wrong(id, format!("there is no `{name}`{near}"))
    }

    fn select(&mut self, id: u64, select: &SelectExpr) -> Result<(String, Type), Wrong> {
        let field = &select.field;
        let at_field =
            |problem: String| Err(Wrong { node: id, name: Some(field.clone()), problem });
        let Expr::Ident(root) = &select.operand.expr else {
            let problem = match &select.operand.expr {
                Expr::Select(_) => "a value has no fields; names are two words long: `pool.limit`",
                _ => "only names have fields: `pool.limit`",
            };
            return wrong(id, problem);
        };
        let is_element = self.element.as_ref().is_some_and(|(element, _)| element == root);
        if is_element || place_of(root).is_some() {
            return wrong(id, format!("`{root}` is a value and has no field `{field}`"));
        }
        if !ROOTS.contains(&root.as_str()) {
            let near = meant(root, ROOTS.into_iter());
            return wrong(select.operand.id, format!("there is no `{root}`{near}"));
        }
        match place_of(&format!("{root}.{field}")) {
            Some(place) if select.test => {
                let (name, _) = self.read(place, '?');
                Ok((name, BOOL))
            }
            Some(place) => Ok(self.read(place, '#')),
            None => at_field(format!("`{root}` has no `{field}`{}", meant(field, fields_of(root)))),
        }
    }

    /// A name becomes its place, which no expression can spell.
    fn read(&mut self, place: usize, mark: char) -> (String, Type) {
        self.reads.add(place);
        let kind = VARIABLES.get(place).map_or(Kind::Bool, |variable| variable.kind);
        (format!("{mark}{place}"), Type::One(kind))
    }

    fn list(&mut self, id: u64, list: &mut ListExpr, depth: usize) -> Result<Type, Wrong> {
        if !list.optional_indices.is_empty() {
            return wrong(id, "optional elements are not known here; leave the `?` out");
        }
        let mut of = None;
        for element in &mut list.elements {
            let id = element.id;
            let Type::One(kind) = self.walk(element, depth + 1)? else {
                return wrong(id, "is a list in a list; write one list");
            };
            if of.is_some_and(|before| before != kind) {
                let before = of.map_or("", Kind::as_str);
                let problem = format!(
                    "is {} in a list of {before}; the elements of a list are of one type",
                    a(Type::One(kind))
                );
                return wrong(id, problem);
            }
            of = Some(kind);
        }
        Ok(Type::List(of))
    }

    /// `exists` and its like: what they do with each element is done once for each.
    fn each(&mut self, id: u64, each: &mut ComprehensionExpr, depth: usize) -> Result<Type, Wrong> {
        if self.element.is_some() {
            return wrong(id, "is inside another `exists`, `all`, `map` or `filter`; take it out");
        }
        let name = each.iter_var.clone();
        if each.iter_var2.is_some() {
            return wrong(id, "has two names for an element; one is enough");
        }
        if ROOTS.contains(&name.as_str()) {
            return wrong(id, format!("`{name}` is already something else; name the element `x`"));
        }
        let Expr::List(range) = &each.iter_range.expr else {
            return wrong(id, "goes over what is no list; write one: ['a', 'b'].exists(x, x == …)");
        };
        let times = range.elements.len();
        let Type::List(Some(kind)) = self.walk(&mut each.iter_range, depth + 1)? else {
            return wrong(id, "goes over an empty list");
        };
        self.element = Some((name, kind));
        let before = self.steps;
        let found = self.body(id, each, depth + 1);
        self.element = None;
        let found = found?;
        // Once is counted already; the loop itself takes a few steps as well.
        let once = self.steps.saturating_sub(before).saturating_add(4);
        self.spend(id, once.saturating_mul(times))?;
        Ok(found)
    }

    /// What is done with each element. The parser writes it in one of five shapes.
    fn body(&mut self, id: u64, each: &mut ComprehensionExpr, depth: usize) -> Result<Type, Wrong> {
        let Expr::Call(CallExpr { func_name, args, .. }) = &mut each.loop_step.expr else {
            return wrong(id, UNKNOWN_LOOP);
        };
        match (func_name.as_str(), args.as_mut_slice()) {
            (operators::LOGICAL_OR | operators::LOGICAL_AND, [_, condition]) => {
                self.truth(condition, depth)?;
                Ok(BOOL)
            }
            (operators::ADD, [_, added]) => self.walk(added, depth),
            (operators::CONDITIONAL, [condition, then, _]) => {
                self.truth(condition, depth)?;
                match (&each.accu_init.expr, &mut then.expr) {
                    (Expr::Literal(LiteralValue::Int(_)), _) => Ok(BOOL),
                    (Expr::List(_), Expr::Call(CallExpr { args, .. })) => match args.last_mut() {
                        Some(added) => self.walk(added, depth),
                        None => wrong(id, UNKNOWN_LOOP),
                    },
                    _ => wrong(id, UNKNOWN_LOOP),
                }
            }
            _ => wrong(id, UNKNOWN_LOOP),
        }
    }

    /// Something that must be true or false.
    pub(crate) fn truth(&mut self, node: &mut IdedExpr, depth: usize) -> Result<(), Wrong> {
        let id = node.id;
        match self.walk(node, depth)? {
            BOOL => Ok(()),
            found => wrong(id, format!("is {}, where true or false is needed", a(found))),
        }
    }
}

const UNKNOWN_LOOP: &str = "is no loop that is known here; use `exists`, `all` or `exists_one`";

fn fields_of(root: &str) -> impl Iterator<Item = &'static str> + Clone {
    VARIABLES.iter().filter_map(move |variable| {
        let (of, field) = variable.name.split_once('.')?;
        (of == root).then_some(field)
    })
}
