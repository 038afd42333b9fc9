//! A condition that was checked, and its evaluation. An evaluation makes no context: the interpreter asks for
//! the few values that the expression reads, when it reads them. Measured in a release build (the ignored test
//! `costs`): 0.2 µs for one comparison or pattern, 0.5 µs for three comparisons, 1.2 µs for `exists` over three.

use std::{
    any::Any,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, IdedExpr, Value,
    common::{
        ast::SourceInfo,
        types::{CelBool, CelDouble, CelInt, CelString, STRING_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
    context::VariableResolver,
    parser::PrattParser,
};
use jiff::tz::TimeZone;
use regex::Regex;
use tollgate_contract::text::Clean;

use super::{
    check::{Wrong, check},
    facts::{Facts, Known, Reads, VARIABLES},
    scan::scan,
};

/// A place in an expression, counted from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// What is wrong with an expression, and where.
pub(crate) type Refusal = (Option<Position>, String);

/// A condition, checked and ready.
#[derive(Debug)]
pub(crate) struct Expression {
    tree: IdedExpr,
    patterns: Vec<Pattern>,
    pub(crate) reads: Reads,
    pub(crate) numbers: Vec<i64>,
}

/// Where the values come from.
pub(crate) trait Source: Send + Sync {
    /// The value of the name at this place of the table, if it is known.
    fn value(&self, place: usize) -> Option<Known<'_>>;
}

impl Expression {
    pub(crate) fn parse(source: &str) -> Result<Self, Refusal> {
        scan(source).map_err(|(at, problem)| (position(source, at), problem))?;
        if source.trim().is_empty() {
            return Err((None, "is empty; leave `when` out to match always".to_owned()));
        }
        let mut tree = parser().parse(source).map_err(|errors| syntax(source, errors))?;
        let checked = check(&mut tree).map_err(|wrong| located(source, wrong))?;
        let patterns = checked.patterns.into_iter().map(Pattern).collect();
        Ok(Self { tree, patterns, reads: checked.reads, numbers: checked.numbers })
    }

    /// Is it true? The error says what is not known, or what went wrong.
    pub(crate) fn is_true(&self, source: &dyn Source) -> Result<bool, Failure> {
        let values = Values { source, patterns: &self.patterns };
        let mut context = Context::with_env(Arc::clone(&ENV));
        context.set_variable_resolver(&values);
        match Value::resolve_val(&self.tree, &context) {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(value) => Ok(*value.inner()),
                None => Err(Failure::Wrong("gives neither true nor false".to_owned())),
            },
            Err(error) => Err(failure(&error)),
        }
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It reads what is not known.
    Unknown(&'static str),
    /// It cannot be worked out.
    Wrong(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "reads `{name}`, which is not known"),
            Self::Wrong(problem) => f.write_str(problem),
        }
    }
}

fn failure(error: &ExecutionError) -> Failure {
    let text = match error {
        ExecutionError::UndeclaredReference(name) => {
            let place = name.strip_prefix('#').and_then(|place| place.parse::<usize>().ok());
            if let Some(variable) = place.and_then(|place| VARIABLES.get(place)) {
                return Failure::Unknown(variable.name);
            }
            "reads what is not known"
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "divides by zero",
        ExecutionError::Overflow(..) => "becomes larger than a whole number can be",
        ExecutionError::FunctionError { function, .. } if function == "int" => {
            "makes a whole number of one that is infinite or too large"
        }
        ExecutionError::NoSuchOverload(_) | ExecutionError::ValuesNotComparable(..) => {
            "compares what is no number, such as infinite less infinite"
        }
        other => return Failure::Wrong(Clean::new(&other.to_string()).to_string()),
    };
    Failure::Wrong(text.to_owned())
}

/// Values, as the interpreter asks for them.
struct Values<'a> {
    source: &'a dyn Source,
    patterns: &'a [Pattern],
}

impl Values<'_> {
    /// What is no number is not known either.
    fn known(&self, place: usize) -> Option<Known<'_>> {
        let is_number = |known: &Known<'_>| !matches!(known, Known::Double(n) if n.is_nan());
        self.source.value(place).filter(is_number)
    }
}

impl VariableResolver for Values<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        let mut letters = name.chars();
        let mark = letters.next()?;
        let place = letters.as_str().parse::<usize>().ok()?;
        match mark {
            '#' => match self.known(place)? {
                Known::Bool(value) => Some(CowVal::owned(CelBool::from(value))),
                Known::Int(value) => Some(CowVal::owned(CelInt::from(value))),
                Known::Double(value) => Some(CowVal::owned(CelDouble::from(value))),
                Known::Text(value) => Some(CowVal::owned(CelString::from(value))),
            },
            '?' => {
                let is_known = self.known(place).is_some();
                Some(CowVal::owned(CelBool::from(is_known)))
            }
            '/' => self.patterns.get(place).map(|pattern| CowVal::Borrowed(pattern as &dyn Val)),
            _ => None,
        }
    }
}

/// A pattern as a value, so that it is made once and not at each evaluation.
#[derive(Debug, Clone)]
struct Pattern(Regex);

static PATTERN: Type = Type::new_unspecified_type("pattern");

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN
    }

    fn cel_type() -> &'static Type {
        &PATTERN
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}

/// The functions that there are, with one more: a text against a pattern that is made already.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    // Were it not taken, a rule that uses it would fail on its samples and not load.
    let _ = env.add_member_overload(
        "matches",
        "string_matches_pattern",
        STRING_TYPE,
        vec![PATTERN.to_owned()],
        |args| match args.as_slice() {
            [text, pattern] => {
                let text = text.downcast_ref::<CelString<'_>>();
                match (text, pattern.downcast_ref::<Pattern>()) {
                    (Some(text), Some(pattern)) => {
                        Ok(CowVal::owned(CelBool::from(pattern.0.is_match(text.inner()))))
                    }
                    _ => Err(ExecutionError::function_error("matches", "takes a text")),
                }
            }
            _ => Err(ExecutionError::function_error("matches", "takes one pattern")),
        },
    );
    Arc::new(env)
});

fn parser() -> PrattParser {
    PrattParser::new().max_recursion_depth(64).error_recovery_limit(1)
}

fn syntax(source: &str, errors: cel::ParseErrors) -> Refusal {
    let first = errors.errors.iter().find(|error| error.pos.0 > 0).or(errors.errors.first());
    let Some(first) = first else { return (None, "cannot be read".to_owned()) };
    let position = match (usize::try_from(first.pos.0), usize::try_from(first.pos.1)) {
        (Ok(line @ 1..), Ok(column)) => in_letters(source, line, column),
        _ => None,
    };
    let why = first.msg.trim_start_matches("Syntax error: ");
    (position, format!("cannot be read: {}", Clean::new(why)))
}

/// The parser counts bytes from the beginning of a line.
fn in_letters(source: &str, line: usize, column: usize) -> Option<Position> {
    let before = source.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
    position(source, before + column.saturating_sub(1))
}

fn position(source: &str, at: usize) -> Option<Position> {
    let before = source.get(..at)?;
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Some(Position { line, column })
}

/// Where something wrong stands. The parser gives the places of what it read only together with an error, so
/// that the same text is read once more with one at its end.
fn located(source: &str, wrong: Wrong) -> Refusal {
    let places = parser().parse(&format!("{source}\n)")).err();
    let places =
        places.and_then(|errors| errors.errors.into_iter().find_map(|error| error.source_info));
    let offset = |places: Arc<SourceInfo>| places.offset_for(wrong.node).map(|(start, _)| start);
    let at = places.and_then(offset).and_then(|start| usize::try_from(start).ok());
    let at = at.map(|at| {
        let rest = source.get(at..).unwrap_or_default();
        at + wrong.name.and_then(|name| rest.find(&name)).unwrap_or(0)
    });
    (at.and_then(|at| position(source, at)), wrong.problem)
}

/// Facts read through the table.
pub(crate) struct Live<'a, 'f> {
    pub(crate) facts: &'a Facts<'f>,
    pub(crate) zone: &'a TimeZone,
}

impl Source for Live<'_, '_> {
    fn value(&self, place: usize) -> Option<Known<'_>> {
        VARIABLES.get(place).and_then(|variable| (variable.read)(self.facts, self.zone))
    }
}
