//! Filters of items: one condition on one field.

use super::field_path::FieldPath;
use crate::config::FilterConfig;
use serde_json::Value;
use std::fmt;

/// A condition on one field. It is displayed in words that follow "whose".
#[derive(Debug, Clone)]
pub(super) struct ItemFilter {
    field: FieldPath,
    test: FilterTest,
}

/// The condition on the value of the field.
#[derive(Debug, Clone)]
enum FilterTest {
    Equals(Value),
    NotEquals(Value),
    In(Vec<Value>),
    Exists(bool),
    Contains(String),
}

impl ItemFilter {
    /// Parses a configured filter.
    pub(super) fn new(config: FilterConfig) -> ItemFilter {
        let field = FieldPath::parse(&config.field);
        // Loading refuses all but exactly one test; of several that a program sets, the first one counts.
        let test = if let Some(wanted) = config.equals {
            FilterTest::Equals(wanted)
        } else if let Some(unwanted) = config.not_equals {
            FilterTest::NotEquals(unwanted)
        } else if let Some(wanted) = config.one_of {
            FilterTest::In(wanted)
        } else if let Some(part) = config.contains {
            FilterTest::Contains(part)
        } else {
            FilterTest::Exists(config.exists.unwrap_or(true))
        };
        ItemFilter { field, test }
    }

    /// Returns true if `item` meets the condition. A field that is `null` counts as missing.
    pub(super) fn passes(&self, item: &Value) -> bool {
        let Some(value) = self.field.get(item) else {
            return matches!(&self.test, FilterTest::NotEquals(_) | FilterTest::Exists(false));
        };
        match &self.test {
            FilterTest::Equals(wanted) => is_equal(value, wanted),
            FilterTest::NotEquals(unwanted) => !is_equal(value, unwanted),
            FilterTest::In(wanted) => wanted.iter().any(|wanted| is_equal(value, wanted)),
            FilterTest::Exists(exists) => *exists,
            FilterTest::Contains(part) => match value {
                Value::String(text) => text.contains(part),
                Value::Array(items) => items.iter().any(|item| item.as_str() == Some(part)),
                _ => false,
            },
        }
    }
}

impl fmt::Display for ItemFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match &self.test {
            FilterTest::Equals(wanted) => write!(f, "{field} is {wanted}"),
            FilterTest::NotEquals(unwanted) => write!(f, "{field} is not {unwanted}"),
            FilterTest::In(wanted) => {
                let wanted: Vec<_> = wanted.iter().map(Value::to_string).collect();
                write!(f, "{field} is one of {}", wanted.join(", "))
            }
            FilterTest::Exists(true) => write!(f, "{field} is there"),
            FilterTest::Exists(false) => write!(f, "{field} is missing"),
            FilterTest::Contains(part) => write!(f, "{field} contains {part:?}"),
        }
    }
}

/// Compares two scalars; numbers by value, so that 1 equals 1.0.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        // Whole numbers are not compared as floats, which would round large ones together.
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn passes(test: FilterTest, item: &Value) -> bool {
        let field = FieldPath::parse("a.b");
        ItemFilter { field, test }.passes(item)
    }

    #[test]
    fn each_test_is_defined_on_each_kind_of_field() {
        use FilterTest::{Contains, Equals, Exists, In, NotEquals};
        let items = [
            json!({ "a": { "b": "open" } }),
            json!({ "a": { "b": 1.0 } }),
            json!({ "a": { "b": true } }),
            json!({ "a": { "b": ["open", "x"] } }),
            json!({ "a": { "b": null } }),
            json!({}),
        ];
        let on_all = |test: FilterTest| items.each_ref().map(|item| u8::from(passes(test.clone(), item)));
        assert_eq!(on_all(Equals(json!("open"))), [1, 0, 0, 0, 0, 0]);
        assert_eq!(on_all(Equals(json!(1))), [0, 1, 0, 0, 0, 0]);
        assert_eq!(on_all(NotEquals(json!("open"))), [0, 1, 1, 1, 1, 1]);
        assert_eq!(on_all(In(vec![json!(true), json!(1)])), [0, 1, 1, 0, 0, 0]);
        assert_eq!(on_all(Exists(true)), [1, 1, 1, 1, 0, 0]);
        assert_eq!(on_all(Exists(false)), [0, 0, 0, 0, 1, 1]);
        assert_eq!(on_all(Contains("pe".to_owned())), [1, 0, 0, 0, 0, 0]);
        assert_eq!(on_all(Contains("open".to_owned())), [1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn large_whole_numbers_are_not_rounded() {
        assert!(!is_equal(
            &json!(9_007_199_254_740_993_u64),
            &json!(9_007_199_254_740_992_u64)
        ));
        assert!(is_equal(&json!(2), &json!(2.0)));
        assert!(!is_equal(&json!(0), &json!(false)));
    }
}
