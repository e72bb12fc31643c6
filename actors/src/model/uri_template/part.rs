//! The parts of a parsed template: literals and variables, with the operator table of RFC 6570, appendix A.

use super::unit::{Unit, is_unreserved};

/// Index into `heads` and `enter` before the first variable of an expression that has a value.
pub(super) const FRESH: usize = 0;

/// Index into `heads` and `enter` after a variable of the same expression had a value.
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
    /// The text before the value, by [`FRESH`] and [`STARTED`].
    pub(super) heads: [Vec<Unit>; 2],
    /// True for the last variable of its expression.
    is_last: bool,
}

impl Variable {
    pub(super) fn new(name: &str, name_units: &[Unit], operator: Operator, is_last: bool) -> Variable {
        Variable {
            name: name.to_owned(),
            operator,
            heads: [
                operator.head(operator.opener(), name_units),
                operator.head(Some(operator.separator()), name_units),
            ],
            is_last,
        }
    }

    /// Returns the state before the next part; `is_started` is true if a variable of this expression had a
    /// value.
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
        let mut head: Vec<Unit> = lead.map(Unit::plain).into_iter().collect();
        match self {
            Operator::Query | Operator::QueryContinuation => {
                head.extend_from_slice(name);
                head.push(Unit::plain('='));
            }
            // The equals sign of a parameter depends on its value, so it is no part of the head.
            Operator::Parameter => head.extend_from_slice(name),
            _ => {}
        }
        head
    }

    pub(super) fn is_required(self) -> bool {
        matches!(self, Operator::Simple | Operator::Reserved)
    }

    pub(super) fn allows(self, unit: Unit) -> bool {
        // RFC 6570, section 3.2.1: only `+` and `#` allow reserved characters.
        let takes_all = matches!(self, Operator::Reserved | Operator::Fragment);
        takes_all || unit.is_encoded || is_unreserved(unit.character)
    }
}
