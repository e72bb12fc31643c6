//! The split of a URI along the parts of a template.
//!
//! Owns a table of what can be reached: for each part and each position, whether the parts from there on spell the rest.
//! It is filled from the end, each cell once, so that the walk from the front never has to turn back.
//! Never parses and never decodes: receives parts and units, sends back names and values.

use super::part::{FRESH, Operator, Part, STARTED, Variable};
use super::unit::Unit;

/// The values of the variables, in order, when `parts` can spell `units`; earlier ones present if possible, then shortest.
pub(super) fn split(parts: &[Part], units: &[Unit]) -> Option<Vec<(String, String)>> {
    // Most URIs fail at the first literal; they shall not pay for the table.
    if let Some(Part::Literal(literal)) = parts.first()
        && !begins_with(units, literal)
    {
        return None;
    }
    let rows = fill(parts, units);
    rows[0].enter[FRESH][0].then(|| walk(parts, units, &rows))
}

/// What can be reached around one part.
struct Row {
    /// Standing before the part, per state; `STARTED` only before a variable.
    enter: [Vec<bool>; 2],
    /// Standing inside the value of the part; only for a variable.
    value: Vec<bool>,
}

/// One row per part, and one for the end.
fn fill(parts: &[Part], units: &[Unit]) -> Vec<Row> {
    let end = (0..=units.len()).map(|at| at == units.len()).collect();
    let mut rows = vec![Row {
        enter: [end, Vec::new()],
        value: Vec::new(),
    }];
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
    let enter = |at| begins_with(&units[at..], literal) && after.enter[FRESH][at + literal.len()];
    Row {
        enter: [(0..=units.len()).map(enter).collect(), Vec::new()],
        value: Vec::new(),
    }
}

fn fill_variable(variable: &Variable, units: &[Unit], after: &Row) -> Row {
    let exit = &after.enter[variable.state_after(true)];
    let mut value = exit.clone();
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
        let enter = |at| presence.find(at, state).is_some() || !variable.operator.is_required() && absent[at];
        (0..=units.len()).map(enter).collect()
    });
    Row { enter, value }
}

/// Goes where the table says that the end can be reached; `rows` must hold that for the start.
fn walk(parts: &[Part], units: &[Unit], rows: &[Row]) -> Vec<(String, String)> {
    let mut values = Vec::new();
    let (mut at, mut state) = (0, FRESH);
    for (part, rows) in parts.iter().zip(rows.windows(2)) {
        let variable = match part {
            Part::Literal(literal) => {
                at += literal.len();
                continue;
            }
            Part::Variable(variable) => variable,
        };
        let exit = &rows[1].enter[variable.state_after(true)];
        let presence = Presence {
            variable,
            units,
            value: &rows[0].value,
            exit,
        };
        if let Some((begin, end_min)) = presence.find(at, state) {
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

/// How one variable can be present.
struct Presence<'a> {
    variable: &'a Variable,
    units: &'a [Unit],
    /// Where the end can be reached from inside the value.
    value: &'a [bool],
    /// Where the end can be reached from behind the value.
    exit: &'a [bool],
}

impl Presence<'_> {
    /// Where the value begins and where it may end at the earliest, when the variable with its head can stand at `at`.
    fn find(&self, at: usize, state: usize) -> Option<(usize, usize)> {
        let head = &self.variable.heads[state];
        if !begins_with(&self.units[at..], head) {
            return None;
        }
        let begin = at + head.len();
        match self.variable.operator {
            Operator::Simple | Operator::Reserved => self.find_nonempty(begin),
            // An empty parameter loses its equals sign: `;name`, but `;name=value`.
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
    /// Steps of this thread, at their worst: a bound on time alone would depend on the machine.
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
