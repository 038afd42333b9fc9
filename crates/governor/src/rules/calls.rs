//! The operators and functions of expressions, with the types that the interpreter really takes: whole numbers
//! and fractions can be compared with each other, but not added.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, Expr, LiteralValue, operators},
};
use regex::RegexBuilder;

use super::{
    check::{BOOL, Checked, DOUBLE, INT, TEXT, Type, Wrong, a, wrong},
    facts::Kind,
};
use crate::config::meant;

/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 200;

/// How large a pattern may become.
const LARGEST_PATTERN: usize = 1 << 20;

/// Matching a pattern is worth so many other steps.
const PATTERN_STEPS: usize = 20;

/// What can be called.
const FUNCTIONS: [&str; 15] = [
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "size",
    "int",
    "double",
    "string",
    "has",
    "exists",
    "all",
    "exists_one",
    "filter",
    "map",
    "in",
];

/// Checks a call, and everything in it.
pub(crate) fn check(
    checked: &mut Checked,
    id: u64,
    call: &mut CallExpr,
    depth: usize,
) -> Result<Type, Wrong> {
    let name = call.func_name.clone();
    if is_operator(&name) {
        return operator(checked, id, &name, &mut call.args, depth + 1);
    }
    if let Some(problem) = refused(&name) {
        return wrong(id, problem);
    }
    let target = call.target.as_deref_mut();
    match (name.as_str(), target, call.args.as_mut_slice()) {
        ("matches", Some(target), [pattern]) => {
            text(checked, target, depth + 1)?;
            let place = compile(checked, pattern)?;
            checked.spend(id, PATTERN_STEPS)?;
            // A pattern is made once, and passed as a value of its own.
            pattern.expr = Expr::Ident(format!("/{place}"));
            Ok(BOOL)
        }
        ("startsWith" | "endsWith" | "contains", Some(target), [part]) => {
            text(checked, target, depth + 1)?;
            text(checked, part, depth + 1)?;
            Ok(BOOL)
        }
        ("size", Some(of), []) | ("size", None, [of]) => {
            let of_id = of.id;
            match checked.walk(of, depth + 1)? {
                TEXT | Type::List(_) => Ok(INT),
                found => wrong(of_id, format!("is {}; only texts and lists have a size", a(found))),
            }
        }
        ("int" | "double", None, [of]) => {
            let of_id = of.id;
            match checked.walk(of, depth + 1)? {
                INT | DOUBLE => Ok(if name == "int" { INT } else { DOUBLE }),
                found => wrong(of_id, format!("is {}; only a number can become one", a(found))),
            }
        }
        ("string", None, [of]) => {
            let of_id = of.id;
            match checked.walk(of, depth + 1)? {
                Type::One(_) => Ok(TEXT),
                found => wrong(of_id, format!("is {}, which is no text", a(found))),
            }
        }
        (known, _, _) if FUNCTIONS.contains(&known) => {
            wrong(id, format!("`{known}` is written as {}", written(known)))
        }
        _ => {
            let near = meant(&name, FUNCTIONS.into_iter());
            wrong(id, format!("there is no function `{name}`{near}"))
        }
    }
}

fn written(function: &str) -> &'static str {
    match function {
        "startsWith" => "intent.agent_id.startsWith('ci-')",
        "endsWith" => "intent.agent_id.endsWith('-ci')",
        "contains" => "intent.agent_id.contains('ci')",
        "matches" => "intent.agent_id.matches('^ci-[0-9]+$')",
        "size" => "size(intent.agent_id)",
        "int" => "int(pool.reset_in)",
        "double" => "double(pool.used)",
        "string" => "string(pool.used)",
        "has" => "has(pool.limit)",
        "in" => "intent.agent_id in ['a', 'b']",
        "filter" => "[1, 2].filter(x, x > 1)",
        "map" => "[1, 2].map(x, x + 1)",
        "all" => "['a', 'b'].all(x, x != intent.agent_id)",
        "exists_one" => "['a', 'b'].exists_one(x, x == intent.agent_id)",
        _ => "['a', 'b'].exists(x, intent.agent_id.startsWith(x))",
    }
}

/// What is known elsewhere and not here, and what to do instead.
fn refused(name: &str) -> Option<String> {
    let instead = match name {
        "timestamp" | "duration" => "use `time.hour`, `pool.reset_in` and their like, or `during`",
        "dyn" | "type" => "every name has one type already; leave it out",
        "uint" => "use `int`",
        "bytes" => "use texts",
        "bool" => "compare instead",
        "optional" | "orValue" | "or" | "value" | "hasValue" | "of" | "none" | "optMap" => {
            "use `has(pool.limit)` to ask whether something is known"
        }
        operators::INDEX | operators::OPT_INDEX => {
            return Some(
                "elements are not taken out of lists here; use `in` or `exists`".to_owned(),
            );
        }
        operators::OPT_SELECT => {
            return Some("`.?` is not known here; ask `has(pool.limit)` first".to_owned());
        }
        _ if name.starts_with("get") => "use `time.hour`, `time.weekday` and their like",
        _ => return None,
    };
    Some(format!("`{name}` is not known here; {instead}"))
}

fn is_operator(name: &str) -> bool {
    matches!(
        name,
        operators::CONDITIONAL
            | operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NEGATE
            | operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
    )
}

fn operator(
    checked: &mut Checked,
    id: u64,
    name: &str,
    args: &mut [IdedExpr],
    depth: usize,
) -> Result<Type, Wrong> {
    match args {
        [condition, then, other] => {
            checked.truth(condition, depth)?;
            let (left, right) = (checked.walk(then, depth)?, checked.walk(other, depth)?);
            if left == right {
                return Ok(left);
            }
            let problem = format!("gives {} or {}; both must be of one type", a(left), a(right));
            wrong(id, problem)
        }
        [of] if name == operators::LOGICAL_NOT => checked.truth(of, depth).map(|()| BOOL),
        [of] => match checked.walk(of, depth)? {
            found @ (INT | DOUBLE) => Ok(found),
            found => wrong(id, format!("`-` does not go with {}", a(found))),
        },
        [left, right] if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) => {
            checked.truth(left, depth)?;
            checked.truth(right, depth)?;
            Ok(BOOL)
        }
        [left, right] => {
            let (left, right) = (checked.walk(left, depth)?, checked.walk(right, depth)?);
            binary(id, name, left, right)
        }
        _ => wrong(id, "has too many parts"),
    }
}

/// Can these be equal, and one less than the other?
fn compare(left: Type, right: Type) -> bool {
    left == right || is_number(left) && is_number(right)
}

fn is_number(of: Type) -> bool {
    matches!(of, INT | DOUBLE)
}

fn binary(id: u64, name: &str, left: Type, right: Type) -> Result<Type, Wrong> {
    let sign = name.trim_matches(['_', '@']);
    let found = match name {
        operators::EQUALS | operators::NOT_EQUALS => compare(left, right).then_some(BOOL),
        operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS => {
            (compare(left, right) && (is_number(left) || left == TEXT)).then_some(BOOL)
        }
        operators::IN => match right {
            Type::List(Some(of)) => compare(left, Type::One(of)).then_some(BOOL),
            _ => None,
        },
        operators::MODULO => (left == INT && right == INT).then_some(INT),
        operators::ADD if left == TEXT && right == TEXT => Some(TEXT),
        _ => (left == right && is_number(left)).then_some(left),
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let advice = match (left, right) {
        (INT, DOUBLE) | (DOUBLE, INT) if name == operators::MODULO => {
            "; it takes whole numbers: int(…)"
        }
        (INT, DOUBLE) | (DOUBLE, INT) => "; make them one type: double(pool.used), or 1.0",
        (DOUBLE, DOUBLE) => "; it takes whole numbers: int(…)",
        _ if name == operators::IN => "; it takes a value and a list of such: x in ['a', 'b']",
        (TEXT, other) | (other, TEXT) if is_number(other) => {
            "; a text in quotes is no number, and a number without quotes no text"
        }
        _ => "",
    };
    wrong(id, format!("`{sign}` does not go with {} and {}{advice}", a(left), a(right)))
}

fn text(checked: &mut Checked, node: &mut IdedExpr, depth: usize) -> Result<(), Wrong> {
    let id = node.id;
    match checked.walk(node, depth)? {
        Type::One(Kind::Text) => Ok(()),
        found => wrong(id, format!("is {}, where a string is needed", a(found))),
    }
}

/// Makes the pattern, and gives its place.
fn compile(checked: &mut Checked, node: &IdedExpr) -> Result<usize, Wrong> {
    let Expr::Literal(LiteralValue::String(pattern)) = &node.expr else {
        return wrong(node.id, "a pattern is written out: matches('^ci-[0-9]+$')");
    };
    let pattern = pattern.inner();
    if pattern.len() > LONGEST_PATTERN {
        let problem = format!(
            "a pattern has at most {LONGEST_PATTERN} bytes, and this has {}",
            pattern.len()
        );
        return wrong(node.id, problem);
    }
    match RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).build() {
        Ok(made) => {
            checked.patterns.push(made);
            Ok(checked.patterns.len() - 1)
        }
        Err(regex::Error::CompiledTooBig(_)) => {
            wrong(node.id, "the pattern is too large; repeat less: [0-9]+ instead of [0-9]{1000}")
        }
        Err(error) => {
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            wrong(node.id, format!("is no pattern: {why}"))
        }
    }
}
