//! Matching of a URI against the parts of a template.
//!
//! A table says, for each part and each position of the URI, if the parts from there on can produce the rest.
//! It is filled from the end, each cell once, so the walk from the front never has to backtrack.

use super::part::{FRESH, Operator, Part, STARTED, Variable};
use super::unit::Unit;

/// Returns the values of the variables in order if `parts` can produce `units`. Earlier variables decide
/// first: they are present if possible, then as short as possible.
pub(super) fn split(parts: &[Part], units: &[Unit]) -> Option<Vec<(String, String)>> {
    // Most URIs differ in the first literal, and the table costs an allocation per part.
    if let Some(Part::Literal(literal)) = parts.first()
        && !begins_with(units, literal)
    {
        return None;
    }
    let rows = fill(parts, units);
    rows[0].enter[FRESH][0].then(|| walk(parts, units, &rows))
}

/// The positions of the URI from which its end can be reached.
struct Row {
    /// Before the part, by state; `STARTED` only before a variable.
    enter: [Vec<bool>; 2],
    /// Inside the value of the part; only for a variable.
    value: Vec<bool>,
}

/// Fills one row per part, and one for the end of the template.
fn fill(parts: &[Part], units: &[Unit]) -> Vec<Row> {
    let end = (0..=units.len()).map(|at| at == units.len()).collect();
    let mut rows = vec![Row {
        enter: [end, Vec::new()],
        value: Vec::new(),
    }];
    // From the end, because a row depends only on the one after it.
    for part in parts.iter().rev() {
        let after = rows.last().expect("the row of the end is there from the start");
        let row = match part {
            Part::Literal(literal) => fill_literal(literal, units, after),
            Part::Variable(variable) => fill_variable(variable, units, after),
        };
        rows.push(row);
    }
    rows.reverse();
    rows
}

fn fill_literal(literal: &[Unit], units: &[Unit], after: &Row) -> Row {
    let mut enter = Vec::with_capacity(units.len() + 1);
    for at in 0..=units.len() {
        enter.push(begins_with(&units[at..], literal) && after.enter[FRESH][at + literal.len()]);
    }
    Row {
        enter: [enter, Vec::new()],
        value: Vec::new(),
    }
}

fn fill_variable(variable: &Variable, units: &[Unit], after: &Row) -> Row {
    let exit = &after.enter[variable.state_after(true)];
    let mut value = exit.clone();
    // From the end, so that one pass covers values of any length.
    for at in (0..units.len()).rev() {
        count(1);
        value[at] |= value[at + 1] && variable.operator.allows(units[at]);
    }
    let presence = Presence {
        variable,
        units,
        value: &value,
        exit,
    };
    let enter = [FRESH, STARTED].map(|state| {
        let absent = &after.enter[variable.state_after(state == STARTED)];
        let may_be_absent = !variable.operator.is_required();
        (0..=units.len())
            .map(|at| presence.find(at, state).is_some() || may_be_absent && absent[at])
            .collect()
    });
    Row { enter, value }
}

/// Follows the table to the end and collects the values. The end must be reachable from the start.
fn walk(parts: &[Part], units: &[Unit], rows: &[Row]) -> Vec<(String, String)> {
    let mut values = Vec::new();
    let mut at = 0;
    let mut state = FRESH;
    for (index, part) in parts.iter().enumerate() {
        let variable = match part {
            Part::Literal(literal) => {
                at += literal.len();
                continue;
            }
            Part::Variable(variable) => variable,
        };
        let exit = &rows[index + 1].enter[variable.state_after(true)];
        let presence = Presence {
            variable,
            units,
            value: &rows[index].value,
            exit,
        };
        if let Some((begin, end_min)) = presence.find(at, state) {
            // The first possible end makes the value as short as possible.
            at = (end_min..=units.len())
                .find(|&end| exit[end])
                .expect("a value that was entered has an exit");
            let value = units[begin..at].iter().map(|unit| unit.character).collect();
            values.push((variable.name.clone(), value));
            state = variable.state_after(true);
        } else {
            state = variable.state_after(state == STARTED);
        }
    }
    values
}

/// A variable with a value, at any position.
struct Presence<'a> {
    variable: &'a Variable,
    units: &'a [Unit],
    /// The positions inside the value from which the end can be reached.
    value: &'a [bool],
    /// The positions behind the value from which the end can be reached.
    exit: &'a [bool],
}

impl Presence<'_> {
    /// Returns the start of the value and its first possible end if the variable with its head can stand at
    /// `at`.
    fn find(&self, at: usize, state: usize) -> Option<(usize, usize)> {
        let head = &self.variable.heads[state];
        if !begins_with(&self.units[at..], head) {
            return None;
        }
        let begin = at + head.len();
        match self.variable.operator {
            Operator::Simple | Operator::Reserved => self.find_nonempty(begin),
            // RFC 6570, section 3.2.7: an empty parameter has no equals sign, as in `;name` and
            // `;name=value`.
            Operator::Parameter if self.exit[begin] => Some((begin, begin)),
            Operator::Parameter if begins_with(&self.units[begin..], &[Unit::plain('=')]) => {
                self.find_nonempty(begin + 1)
            }
            Operator::Parameter => None,
            _ => self.value[begin].then_some((begin, begin)),
        }
    }

    fn find_nonempty(&self, begin: usize) -> Option<(usize, usize)> {
        let first = *self.units.get(begin)?;
        (self.value[begin + 1] && self.variable.operator.allows(first)).then_some((begin, begin + 1))
    }
}

fn begins_with(units: &[Unit], text: &[Unit]) -> bool {
    count(text.len() + 1);
    units.starts_with(text)
}

#[cfg(not(test))]
fn count(_steps: usize) {}

#[cfg(test)]
fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps);
}

#[cfg(test)]
thread_local! {
    /// The steps of this thread in the worst case. Tests bound steps because a bound on time depends on the
    /// machine.
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
