//! Which items a view shows, and the same in words.
//!
//! Pure: one field, one test. Receives items from the document; a field that is `null` counts as missing.

use super::path::FieldPath;
use crate::config::FilterConfig;
use serde_json::Value;

/// A condition on one field.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    field: FieldPath,
    test: FilterTest,
}

/// The condition on the value of a field. A field that is `null` counts as missing.
#[derive(Debug, Clone)]
enum FilterTest {
    Equals(Value),
    NotEquals(Value),
    In(Vec<Value>),
    Exists(bool),
    Contains(String),
}

impl Filter {
    /// The filter as configured.
    pub(super) fn new(config: FilterConfig) -> Filter {
        // Loading refuses all but exactly one test; of several that a program sets the first counts.
        let test = match config {
            FilterConfig {
                equals: Some(wanted), ..
            } => FilterTest::Equals(wanted),
            FilterConfig {
                not_equals: Some(unwanted),
                ..
            } => FilterTest::NotEquals(unwanted),
            FilterConfig {
                one_of: Some(wanted), ..
            } => FilterTest::In(wanted),
            FilterConfig {
                contains: Some(part), ..
            } => FilterTest::Contains(part),
            FilterConfig { exists, .. } => FilterTest::Exists(exists.unwrap_or(true)),
        };
        Filter {
            field: FieldPath::parse(&config.field),
            test,
        }
    }

    /// Whether the view shows `item`.
    pub(super) fn passes(&self, item: &Value) -> bool {
        let field = self.field.get(item);
        let is = |wanted: &Value| field.is_some_and(|value| same(value, wanted));
        match &self.test {
            FilterTest::Equals(wanted) => is(wanted),
            FilterTest::NotEquals(unwanted) => !is(unwanted),
            FilterTest::In(wanted) => wanted.iter().any(is),
            FilterTest::Exists(exists) => field.is_some() == *exists,
            FilterTest::Contains(part) => match field {
                Some(Value::String(text)) => text.contains(part),
                Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(part)),
                _ => false,
            },
        }
    }

    /// The condition in words that follow "whose".
    pub(super) fn words(&self) -> String {
        let field = self.field.words();
        match &self.test {
            FilterTest::Equals(wanted) => format!("{field} is {wanted}"),
            FilterTest::NotEquals(unwanted) => format!("{field} is not {unwanted}"),
            FilterTest::In(wanted) => {
                let wanted: Vec<_> = wanted.iter().map(Value::to_string).collect();
                format!("{field} is one of {}", wanted.join(", "))
            }
            FilterTest::Exists(true) => format!("{field} is there"),
            FilterTest::Exists(false) => format!("{field} is missing"),
            FilterTest::Contains(part) => format!("{field} contains {part:?}"),
        }
    }
}

/// Whether two scalars are the same; numbers are compared as numbers, so that 1 is 1.0.
fn same(a: &Value, b: &Value) -> bool {
    let by_number = || match (a, b) {
        (Value::Number(a), Value::Number(b)) => (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64(),
        _ => false,
    };
    a == b || by_number()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn passes(test: FilterTest, item: &Value) -> bool {
        let field = FieldPath::parse("a.b");
        Filter { field, test }.passes(item)
    }

    #[test]
    fn each_test_on_each_kind_of_field() {
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
    fn large_whole_numbers_are_not_rounded_together() {
        assert!(!same(
            &json!(9_007_199_254_740_993_u64),
            &json!(9_007_199_254_740_992_u64)
        ));
        assert!(same(&json!(2), &json!(2.0)));
        assert!(!same(&json!(0), &json!(false)));
    }
}
