//! What a template is made of: literals and variables under an operator.
//!
//! Owns the table of operators of RFC 6570 (what opens, separates, names and allows).
//! Never parses a template and never looks at a URI.
//! Built by the parser, read by the matcher.

use super::unit::{Unit, is_unreserved};

/// Index into `heads` and `enter` when no variable of the same expression was present before.
pub(super) const FRESH: usize = 0;

/// Index into `heads` and `enter` when a variable of the same expression was present before.
pub(super) const STARTED: usize = 1;

#[derive(Clone)]
pub(super) enum Part {
    Literal(Vec<Unit>),
    Variable(Variable),
}

#[derive(Clone)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) operator: Operator,
    /// What stands before the value: when no variable of the expression was present before, and when one was.
    pub(super) heads: [Vec<Unit>; 2],
    /// Whether its expression ends with it.
    is_last: bool,
}

impl Variable {
    pub(super) fn new(name: &str, name_units: &[Unit], operator: Operator, is_last: bool) -> Variable {
        let leads = [operator.opener(), Some(operator.separator())];
        let heads = leads.map(|lead| operator.head(lead, name_units));
        Variable {
            name: name.to_owned(),
            operator,
            heads,
            is_last,
        }
    }

    /// The state before the next part, given whether this expression has had a present variable by now.
    pub(super) fn state_after(&self, is_started: bool) -> usize {
        if is_started && !self.is_last {
            STARTED
        } else {
            FRESH
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Simple,
    Reserved,
    Fragment,
    Label,
    Path,
    Parameter,
    Query,
    QueryContinuation,
}

impl Operator {
    pub(super) fn of(character: char) -> Option<Operator> {
        Some(match character {
            '+' => Operator::Reserved,
            '#' => Operator::Fragment,
            '.' => Operator::Label,
            '/' => Operator::Path,
            ';' => Operator::Parameter,
            '?' => Operator::Query,
            '&' => Operator::QueryContinuation,
            _ => return None,
        })
    }

    fn opener(self) -> Option<char> {
        match self {
            Operator::Simple | Operator::Reserved => None,
            Operator::Fragment => Some('#'),
            Operator::Query => Some('?'),
            Operator::Label | Operator::Path | Operator::Parameter | Operator::QueryContinuation => {
                Some(self.separator())
            }
        }
    }

    fn separator(self) -> char {
        match self {
            Operator::Simple | Operator::Reserved | Operator::Fragment => ',',
            Operator::Label => '.',
            Operator::Path => '/',
            Operator::Parameter => ';',
            Operator::Query | Operator::QueryContinuation => '&',
        }
    }

    fn head(self, lead: Option<char>, name: &[Unit]) -> Vec<Unit> {
        let is_query = matches!(self, Operator::Query | Operator::QueryContinuation);
        let name = if is_query || self == Operator::Parameter {
            name
        } else {
            &[]
        };
        let equals = is_query.then(|| Unit::plain('='));
        lead.map(Unit::plain)
            .into_iter()
            .chain(name.iter().copied())
            .chain(equals)
            .collect()
    }

    pub(super) fn is_required(self) -> bool {
        matches!(self, Operator::Simple | Operator::Reserved)
    }

    pub(super) fn allows(self, unit: Unit) -> bool {
        let takes_all = matches!(self, Operator::Reserved | Operator::Fragment);
        takes_all || unit.is_encoded || is_unreserved(unit.character)
    }
}
