//! The ids of tasks as clients get them, each bound to the principal that made the task.
//!
//! A server behind the gateway knows its tasks by an id alone, and cannot tell the clients of the gateway
//! apart. So an id begins with a code that only the gateway can make, and that differs for each principal:
//! the id of another one is that of no task.

use ring::hmac;
use subtle::ConstantTimeEq;

/// The bytes of the code, which is written in hexadecimal digits.
const CODE_LEN: usize = 16;

/// Makes and reads the ids of one server's tasks.
pub(super) struct TaskIds(hmac::Key);

impl TaskIds {
    pub(super) fn new() -> TaskIds {
        // New with each start: a program's tasks end with it, and codes of another gateway mean nothing here.
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("a system without random numbers can keep no secret");
        TaskIds(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    fn code(&self, principal: Option<&str>, id: &str) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        let name = principal.unwrap_or_default();
        // The length keeps the end of the name apart from the beginning of the id.
        context.update(&(name.len() as u64).to_be_bytes());
        context.update(&[u8::from(principal.is_some())]);
        context.update(name.as_bytes());
        context.update(id.as_bytes());
        let code = context.sign();
        let digits = code.as_ref()[..CODE_LEN].iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Returns the id of a task for a client of this principal.
    pub(super) fn seal(&self, principal: Option<&str>, id: &str) -> String {
        format!("{}.{id}", self.code(principal, id))
    }

    /// Returns the id as the server has it; none if it is not one of this principal's.
    pub(super) fn open<'i>(&self, principal: Option<&str>, sealed: &'i str) -> Option<&'i str> {
        let (code, id) = sealed.split_once('.')?;
        let expected = self.code(principal, id);
        bool::from(code.as_bytes().ct_eq(expected.as_bytes())).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_read_for_its_principal_alone() {
        let ids = TaskIds::new();
        for principal in [None, Some(""), Some("ann")] {
            let sealed = ids.seal(principal, "task.1");
            assert_eq!(ids.open(principal, &sealed), Some("task.1"));
            assert_eq!(ids.open(Some("bob"), &sealed), None);
            assert_eq!(TaskIds::new().open(principal, &sealed), None, "another server");
        }
        assert_ne!(ids.seal(None, "1"), ids.seal(Some(""), "1"));
        for made_up in ["", "task.1", "1", &format!("{}.1", "0".repeat(32))] {
            assert_eq!(ids.open(None, made_up), None, "{made_up}");
        }
    }
}
