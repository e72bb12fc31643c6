//! `tidings policy`: questions about the rules of a configuration.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{CliError, Exit, usage};
use crate::auth::{self, Authorize, Object, Policy, Principal, Right, Tokens, Verdict};
use crate::config::{AuthTokenConfig, Config, Overrides};
use crate::credentials;

/// Questions about the rules of a configuration.
#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Say whether the rules give a right, and which one does; ends with 1 if none does
    Test(PolicyTest),
}

/// The arguments of `tidings policy test`.
#[derive(Debug, Args)]
pub(super) struct PolicyTest {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Role of the caller, which may be given several times; anonymous is the one without credentials
    #[arg(long = "as", value_name = "ROLE", required_unless_present = "token")]
    roles: Vec<String>,
    /// File with a token of the configuration, or one of its token files, whose roles the caller has, too
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Scope of the caller's token, which may be given several times
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// list, read, subscribe, publish, call, admin or metrics
    right: Right,
    /// URI, tool:NAME, prompt:NAME or method:NAME; none for admin and metrics
    object: Option<String>,
}

impl PolicyCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let PolicyCommand::Test(test) = self;
        test.run()
    }
}

impl PolicyTest {
    fn run(&self) -> Result<Exit, CliError> {
        let config = Config::load(
            self.config.as_deref(),
            super::environment(),
            &Overrides::default(),
        )?;
        let policy = Policy::new(&config.auth.rule).map_err(settings)?;
        let principal = self.principal(&config)?;
        let object = self.object()?;
        let mut out = std::io::stdout();
        if !auth::is_needed(&config.auth) {
            writeln!(
                out,
                "yes, to every caller: the configuration has no rules and no credentials"
            )?;
            return Ok(Exit::Ok);
        }
        match policy.judge(&principal, self.right, object) {
            Verdict::Allowed(rule) => {
                writeln!(out, "yes, by {rule}")?;
                Ok(Exit::Ok)
            }
            Verdict::NeedsScope(scope) => {
                writeln!(out, "no, but with a token that has the scope {scope:?}, too")?;
                Ok(Exit::Failure)
            }
            Verdict::Denied => {
                writeln!(out, "no, no rule gives it")?;
                Ok(Exit::Failure)
            }
        }
    }

    fn principal(&self, config: &Config) -> Result<Principal, CliError> {
        let mut roles = self.roles.clone();
        if let Some(file) = &self.token {
            let entries = &config.auth.token;
            let named = entries.iter().find(|entry| entry.file.ends_with(file));
            match named {
                Some(entry) => roles.extend(entry.roles.iter().cloned()),
                None => roles.extend(roles_of_token(file, entries)?),
            }
        }
        if roles == ["anonymous"] {
            return Ok(Principal::anonymous());
        }
        Ok(Principal::builder("test")
            .roles(roles)
            .scopes(self.scopes.clone())
            .build())
    }

    fn object(&self) -> Result<Object<'_>, CliError> {
        let Some(text) = &self.object else {
            return match self.right.is_over_service() {
                true => Ok(Object::Service),
                false => Err(misuse(&format!(
                    "the right {} needs an object; name a URI, tool:NAME, prompt:NAME or method:NAME",
                    self.right
                ))),
            };
        };
        Ok(match text.split_once(':') {
            Some(("tool", name)) => Object::Tool(name),
            Some(("prompt", name)) => Object::Prompt(name),
            Some(("method", name)) => Object::Method(name),
            _ if text.contains('{') => Object::Template(text),
            _ => Object::Resource(text),
        })
    }
}

/// Returns the roles of the token in `file`, which stands there itself, as clients have it.
fn roles_of_token(file: &Path, entries: &[AuthTokenConfig]) -> Result<Vec<String>, CliError> {
    let token = credentials::read_secret("token", file).map_err(|error| misuse(&error.to_string()))?;
    let tokens = Tokens::new(entries).map_err(settings)?;
    match tokens.of_token(&token) {
        Some(principal) => Ok(principal.roles().to_vec()),
        None => Err(misuse(&format!(
            "{} is the file of no [[auth.token]], and the token in it is in none; name one of them",
            file.display()
        ))),
    }
}

/// A question that makes no sense has another exit status than the answer no.
fn misuse(text: &str) -> CliError {
    usage("policy", text)
}

fn settings(error: impl Display) -> CliError {
    CliError::Settings(error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::auth::NewToken;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn asked(arguments: &str, rules: &str) -> Result<u8, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidings.toml");
        std::fs::write(&file, rules).unwrap();
        let line = format!("tidings policy test --config {} {arguments}", file.display());
        let parsed = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        match parsed.command {
            Command::Policy(policy) => match policy.run() {
                Ok(exit) => Ok(exit as u8),
                Err(error) => Err(error.to_string()),
            },
            other => panic!("{other:?}"),
        }
    }

    const RULES: &str = "[[auth.token]]\nname = 'ci'\nfile = 'ci.tokens'\nroles = ['writer']\n\
        [[auth.rule]]\nroles = ['writer']\nmay = ['publish']\nmatch = ['note://*']\n\
        [[auth.rule]]\nroles = ['anonymous']\nmay = ['read']\nmatch = ['note://open/*', 'tool:x']\n\
        [[auth.rule]]\nmay = ['call']\nmatch = ['tool:*']\nscope = 'tools'\n";

    #[test]
    fn exit_status_is_the_answer() {
        for (arguments, status) in [
            ("--as writer publish note://a", 0),
            ("--as reader publish note://a", 1),
            ("--token ci.tokens publish note://a", 0),
            ("--as anonymous read note://open/a", 0),
            ("--as anonymous read note://a", 1),
            ("--as any call tool:run", 1),
            ("--as any --scope tools call tool:run", 0),
            ("--as any admin", 1),
        ] {
            assert_eq!(asked(arguments, RULES), Ok(status), "{arguments}");
        }
    }

    #[test]
    fn question_that_makes_no_sense_is_refused() {
        for arguments in [
            "publish note://a",
            "--as writer write note://a",
            "--as writer publish",
            "--token other publish note://a",
        ] {
            assert!(asked(arguments, RULES).is_err(), "{arguments}");
        }
        let misused = asked("--as writer publish", RULES).unwrap_err();
        assert!(misused.contains("needs an object"), "{misused}");
    }

    #[test]
    fn everything_is_allowed_without_a_border() {
        for (rules, status) in [
            ("", 0),
            ("auth.anonymous = 'all'", 0),
            ("auth.anonymous = 'none'", 1),
        ] {
            assert_eq!(
                asked("--as anonymous read note://a", rules),
                Ok(status),
                "{rules}"
            );
        }
    }

    #[test]
    fn token_itself_has_the_roles_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let made = NewToken::make("ci", None).unwrap();
        let [token, lines] = ["ci.token", "ci.lines"].map(|name| folder.path().join(name));
        std::fs::write(&token, &made.token).unwrap();
        std::fs::write(&lines, &made.line).unwrap();
        let rules = RULES.replace("ci.tokens", lines.to_str().unwrap());
        let arguments = format!("--token {} publish note://a", token.display());
        assert_eq!(asked(&arguments, &rules), Ok(0));
    }
}
