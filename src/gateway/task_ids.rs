//! The ids of tasks as clients get them, each bound to the principal that made the task and to its tool.
//!
//! A server behind the gateway knows its tasks by an id alone, and cannot tell the clients of the gateway
//! apart. So an id begins with a code that only the gateway can make, and that differs for each principal:
//! the id of another one is that of no task. It has the name of the tool, too, so that the right to the tool
//! is judged with each request for the task.

use ring::hmac;
use subtle::ConstantTimeEq;

/// The bytes of the code, which is written in hexadecimal digits.
const CODE_LEN: usize = 16;

/// A task of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToolTask<'t> {
    /// The name of the tool, as clients see it.
    pub(super) tool: &'t str,
    /// The id that the server has given it.
    pub(super) id: &'t str,
}

/// Makes and reads the ids of one server's tasks.
pub(super) struct TaskIds(hmac::Key);

impl TaskIds {
    pub(super) fn new() -> TaskIds {
        // New with each start: a program's tasks end with it, and codes of another gateway mean nothing here.
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("a system without random numbers can keep no secret");
        TaskIds(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    fn code(&self, principal: Option<&str>, task: ToolTask<'_>) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&[u8::from(principal.is_some())]);
        // The lengths keep the end of a name apart from the beginning of what follows.
        for name in [principal.unwrap_or_default(), task.tool] {
            context.update(&(name.len() as u64).to_be_bytes());
            context.update(name.as_bytes());
        }
        context.update(task.id.as_bytes());
        let code = context.sign();
        let digits = code.as_ref()[..CODE_LEN].iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Returns the id of a task for a client of this principal.
    pub(super) fn seal(&self, principal: Option<&str>, task: ToolTask<'_>) -> String {
        let ToolTask { tool, id } = task;
        format!("{}.{}.{tool}.{id}", self.code(principal, task), tool.len())
    }

    /// Returns the task of an id; none if it is not one of this principal's.
    pub(super) fn open<'i>(&self, principal: Option<&str>, sealed: &'i str) -> Option<ToolTask<'i>> {
        let (code, rest) = sealed.split_once('.')?;
        let (tool_len, rest) = rest.split_once('.')?;
        let (tool, rest) = rest.split_at_checked(tool_len.parse().ok()?)?;
        let id = rest.strip_prefix('.')?;
        let task = ToolTask { tool, id };
        let expected = self.code(principal, task);
        bool::from(code.as_bytes().ct_eq(expected.as_bytes())).then_some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_read_for_its_principal_alone() {
        let ids = TaskIds::new();
        let task = ToolTask {
            tool: "a.tool",
            id: "task.1",
        };
        for principal in [None, Some(""), Some("ann")] {
            let sealed = ids.seal(principal, task);
            assert_eq!(ids.open(principal, &sealed), Some(task));
            assert_eq!(ids.open(Some("bob"), &sealed), None);
            assert_eq!(TaskIds::new().open(principal, &sealed), None, "another server");
        }
        assert_ne!(ids.seal(None, task), ids.seal(Some(""), task));
        let code = "0".repeat(32);
        for made_up in [
            "",
            "task.1",
            "1",
            &format!("{code}.1"),
            &format!("{code}.1.a.1"),
            &format!("{code}.9.a.1"),
            &format!("{code}.1.é.1"),
        ] {
            assert_eq!(ids.open(None, made_up), None, "{made_up}");
        }
    }

    #[test]
    fn id_names_its_tool_for_sure() {
        let ids = TaskIds::new();
        let sealed = ids.seal(
            None,
            ToolTask {
                tool: "work",
                id: "1",
            },
        );
        assert!(sealed.ends_with(".4.work.1"), "{sealed}");
        for (from, to) in [
            ("4.work.1", "4.play.1"),
            ("4.work.1", "3.wor.k.1"),
            ("4.work.1", "0..work.1"),
        ] {
            assert_eq!(ids.open(None, &sealed.replace(from, to)), None, "{to}");
        }
    }
}
