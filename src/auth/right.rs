//! The rights of a policy, and the objects that they are over.

use std::fmt;
use std::str::FromStr;

/// A right that a rule may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// To see an item in a list, and to be told when the list changes.
    List,
    /// To read a resource and its etag, or to get a prompt.
    Read,
    /// To be told of the changes of a resource.
    Subscribe,
    /// To create, change, touch and remove a resource.
    Publish,
    /// To call a tool, to get a prompt, or to make a request that the protocol does not define.
    Call,
    /// To see and to end the sessions and subscribers of others, and to take a backup.
    Admin,
    /// To read the metrics.
    Metrics,
}

impl Right {
    /// All rights, in the order of their documentation.
    pub const ALL: [Right; 7] = [
        Right::List,
        Right::Read,
        Right::Subscribe,
        Right::Publish,
        Right::Call,
        Right::Admin,
        Right::Metrics,
    ];

    /// The name as written in rules and in the audit.
    pub fn name(self) -> &'static str {
        match self {
            Right::List => "list",
            Right::Read => "read",
            Right::Subscribe => "subscribe",
            Right::Publish => "publish",
            Right::Call => "call",
            Right::Admin => "admin",
            Right::Metrics => "metrics",
        }
    }

    /// Returns true for a right over the service as a whole, whose rules need no pattern.
    pub fn is_over_service(self) -> bool {
        matches!(self, Right::Admin | Right::Metrics)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = String;

    fn from_str(text: &str) -> Result<Right, String> {
        let mut all = Right::ALL.into_iter();
        all.find(|right| right.name() == text).ok_or_else(|| {
            format!("{text:?} is no right; write list, read, subscribe, publish, call, admin or metrics")
        })
    }
}

/// The object of a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object<'a> {
    /// A resource, by its URI.
    Resource(&'a str),
    /// A resource template, by its text.
    Template(&'a str),
    /// A tool, by its name.
    Tool(&'a str),
    /// A prompt, by its name.
    Prompt(&'a str),
    /// A request or notification that the protocol does not define, by its method.
    Method(&'a str),
    /// The service as a whole.
    Service,
}

impl fmt::Display for Object<'_> {
    /// Writes the object as a pattern of a rule names it: a URI, `tool:NAME`, `prompt:NAME` or `method:NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Resource(uri) => f.write_str(uri),
            Object::Template(text) => f.write_str(text),
            Object::Tool(name) => write!(f, "tool:{name}"),
            Object::Prompt(name) => write!(f, "prompt:{name}"),
            Object::Method(name) => write!(f, "method:{name}"),
            Object::Service => f.write_str("service"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_reads_back_as_written() {
        for right in Right::ALL {
            assert_eq!(right.to_string().parse(), Ok(right));
        }
        assert!("Read".parse::<Right>().is_err());
    }
}
