//! What a script expects of a value.
//!
//! - an object of tests, each named by `$` and a word: all hold of the value;
//! - another object: each of its members matches that member of the value;
//! - an array: as long as the value, and each element matches;
//! - anything else: the value itself.
//!
//! A text that begins with `$` and a label stands for what that label saw: `$first.number`.

use std::collections::HashMap;

use serde_json::Value;

/// What labels stand for.
pub(crate) type Seen = HashMap<String, Value>;

/// Replaces each reference to a label by its value.
pub(crate) fn resolve(value: &Value, seen: &Seen) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => match text.strip_prefix('$') {
            Some(path) => look_up(path, seen)?,
            None => value.clone(),
        },
        Value::Array(all) => {
            let all = all.iter().map(|one| resolve(one, seen));
            Value::Array(all.collect::<Result<_, _>>()?)
        }
        Value::Object(all) => {
            let all = all.iter().map(|(key, one)| {
                let resolved = resolve(one, seen)?;
                Ok::<_, String>((key.clone(), resolved))
            });
            Value::Object(all.collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

fn look_up(path: &str, seen: &Seen) -> Result<Value, String> {
    let mut parts = path.split('.');
    let label = parts.next().unwrap_or_default();
    let mut value = seen
        .get(label)
        .ok_or_else(|| format!("nothing is labelled {label:?}"))?;
    for part in parts {
        value = value
            .get(part)
            .ok_or_else(|| format!("{label} has no {part}: {value}"))?;
    }
    Ok(value.clone())
}

/// Says what is wrong if `value` is not what `expected` (resolved) wants.
pub(crate) fn check(expected: &Value, value: &Value) -> Result<(), String> {
    match expected {
        Value::Object(members) => {
            for (key, wanted) in members {
                match key.strip_prefix('$') {
                    Some(test) => check_test(test, wanted, value)?,
                    None => {
                        let member = value.get(key).unwrap_or(&Value::Null);
                        check(wanted, member).map_err(|why| format!("{key}: {why}"))?;
                    }
                }
            }
            Ok(())
        }
        Value::Array(wanted) => {
            let all = value.as_array().filter(|all| all.len() == wanted.len());
            let all = all.ok_or_else(|| format!("got {value}, expected {expected}"))?;
            wanted
                .iter()
                .zip(all)
                .try_for_each(|(wanted, one)| check(wanted, one))
        }
        _ if expected == value => Ok(()),
        _ => Err(format!("got {value}, expected {expected}")),
    }
}

fn check_test(test: &str, wanted: &Value, value: &Value) -> Result<(), String> {
    let numbers = wanted.as_f64().zip(value.as_f64());
    let holds = match test {
        "not" => check(wanted, value).is_err(),
        "above" => numbers.is_some_and(|(wanted, value)| value > wanted),
        "at_least" => numbers.is_some_and(|(wanted, value)| value >= wanted),
        "at_most" => numbers.is_some_and(|(wanted, value)| value <= wanted),
        "one_of" => {
            let mut all = wanted.as_array().into_iter().flatten();
            all.any(|one| check(one, value).is_ok())
        }
        "has" => {
            let mut all = value.as_array().into_iter().flatten();
            all.any(|one| check(wanted, one).is_ok())
        }
        "has_not" => {
            let mut all = value.as_array().into_iter().flatten();
            !all.any(|one| check(wanted, one).is_ok())
        }
        _ => return Err(format!("no test of a value: ${test}")),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("got {value}, expected ${test} {wanted}"))
    }
}
