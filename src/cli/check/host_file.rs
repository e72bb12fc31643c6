//! The servers in the file of an MCP host: Claude Code and Claude Desktop (`mcpServers`), Cursor
//! (`mcpServers`) and VS Code (`servers`).
//!
//! Messages name the file, the server and the key, and never a value: arguments, variables and headers may be
//! secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde::Deserialize;
use serde_json::Value;

use crate::check::Variables;
use crate::printable;
use crate::small_file;

/// The limit on the size of the file in bytes; those of hosts are a thousand times smaller.
const BYTES_MAX: u64 = 4 << 20;

/// A server that a host would start or connect to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HostServer {
    Program {
        command: Vec<OsString>,
        variables: Variables,
        folder: Option<PathBuf>,
    },
    Address {
        url: String,
        /// Each as one line, `NAME: VALUE`.
        headers: Vec<String>,
    },
}

/// The keys of a server that have a meaning for a check. All others are settings of the host.
#[derive(Deserialize)]
struct HostEntry {
    #[serde(rename = "type")]
    transport: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Value>,
    cwd: Option<String>,
    #[serde(rename = "envFile")]
    env_file: Option<Value>,
    #[serde(alias = "serverUrl")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Reads the server of this name in a file; without a name the only one.
///
/// # Errors
/// A text that names the file and the remedy.
pub(super) fn read(path: &Path, name: Option<&str>) -> Result<HostServer, String> {
    let found = read_text(path).and_then(|text| parse(&text, name, &Variable::of_process(path)));
    found.map_err(|problem| format!("{}: {problem}", path.display()))
}

fn read_text(path: &Path) -> Result<String, String> {
    let hint = "name the file of the host, such as .mcp.json, .cursor/mcp.json, .vscode/mcp.json or \
                claude_desktop_config.json";
    small_file::read_text(path, BYTES_MAX).map_err(|error| format!("cannot be read: {error}; {hint}"))
}

/// Reads the text of a file.
fn parse(text: &str, name: Option<&str>, variables: &Variable<'_>) -> Result<HostServer, String> {
    let text = text.trim_start_matches('\u{feff}');
    // With comments and trailing commas, as VS Code and Cursor accept them.
    let parsed = jsonc_parser::parse_to_serde_value::<Option<Value>>(text, &ParseOptions::default());
    let document = parsed.map_err(|error| {
        // The text of the error may have a part of the file.
        let line = error.line_display();
        let column = error.column_display();
        format!("is no JSON at line {line}, column {column}; mend it there")
    })?;
    let document = document.unwrap_or_default();
    let sections = [
        &document["mcpServers"],
        &document["servers"],
        &document["mcp"]["servers"],
    ];
    let Some(servers) = sections.into_iter().find_map(Value::as_object) else {
        return Err(
            "has no object \"mcpServers\" (Claude, Cursor) or \"servers\" (VS Code); add one".to_owned(),
        );
    };
    let names: Vec<&str> = servers.keys().map(String::as_str).collect();
    let known = match names.as_slice() {
        [] => "it has none".to_owned(),
        names => format!("it has {}", printable::line(&names.join(", "))),
    };
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => return Err(format!("choose a server by --server: {known}")),
    };
    let Some(entry) = servers.get(name) else {
        return Err(format!("there is no server {name:?}: {known}"));
    };
    server(entry, variables).map_err(|problem| format!("the server {name:?} {problem}"))
}

fn server(entry: &Value, variables: &Variable<'_>) -> Result<HostServer, String> {
    // The text of the error may have a value.
    let entry = HostEntry::deserialize(entry).map_err(|_| {
        "is not written as hosts read it; it has \"command\", \"args\" and \"env\", or \"url\" and \"headers\""
    })?;
    match entry.transport.as_deref() {
        None | Some("stdio" | "http" | "streamable-http" | "streamableHttp" | "streamable_http") => {}
        Some("sse") => {
            return Err(
                "has the type \"sse\", which no revision since 2025-03-26 has; give the address of its \
                 streamable HTTP endpoint and the type \"http\""
                    .to_owned(),
            );
        }
        Some(other) => return Err(format!("has the type {other:?}; it can be \"stdio\" or \"http\"")),
    }
    match (entry.command.as_deref(), entry.url.as_deref()) {
        (Some(command), None) => program(command, &entry, variables),
        (None, Some(url)) => address(url, &entry, variables),
        (Some(_), Some(_)) => Err("has both \"command\" and \"url\"; leave one".to_owned()),
        (None, None) => Err("has neither \"command\" nor \"url\"; add one".to_owned()),
    }
}

fn program(command: &str, entry: &HostEntry, variables: &Variable<'_>) -> Result<HostServer, String> {
    if entry.env_file.is_some() {
        return Err(
            "has an \"envFile\", which is not read; export its variables and leave it out".to_owned(),
        );
    }
    let mut words = vec![OsString::from(variables.fill("command", command)?)];
    for argument in &entry.args {
        words.push(variables.fill("args", argument)?.into());
    }
    let mut added = Vec::new();
    for (name, value) in &entry.env {
        let value = match value {
            Value::String(text) => variables.fill(&format!("env.{name}"), text)?,
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            // VS Code takes it for a variable that is not set.
            Value::Null => continue,
            Value::Array(_) | Value::Object(_) => {
                return Err(format!("has no text at env.{name}; write one"));
            }
        };
        added.push((name.into(), value.into()));
    }
    let folder = match &entry.cwd {
        Some(folder) => Some(variables.fill("cwd", folder)?.into()),
        None => None,
    };
    Ok(HostServer::Program {
        command: words,
        variables: Variables(added),
        folder,
    })
}

fn address(url: &str, entry: &HostEntry, variables: &Variable<'_>) -> Result<HostServer, String> {
    let mut headers = Vec::new();
    for (name, value) in &entry.headers {
        let value = variables.fill(&format!("headers.{name}"), value)?;
        headers.push(format!("{name}: {value}"));
    }
    Ok(HostServer::Address {
        url: variables.fill("url", url)?,
        headers,
    })
}

/// The values for `${…}` in texts of the file.
struct Variable<'a> {
    /// The folder that the file is about.
    folder: PathBuf,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Variable<'_> {
    fn of_process(path: &Path) -> Variable<'static> {
        let mut folder = path.parent().unwrap_or(Path::new(""));
        // The files of editors are one folder below the one of the project.
        if matches!(folder.file_name(), Some(name) if name == ".vscode" || name == ".cursor") {
            folder = folder.parent().unwrap_or(Path::new(""));
        }
        Variable {
            // An empty path has no absolute form, and one with a dot is the same folder.
            folder: std::path::absolute(Path::new(".").join(folder)).unwrap_or_else(|_| folder.to_owned()),
            environment: &|name| std::env::var(name).ok(),
        }
    }

    /// Returns a text with values in place of its variables.
    fn fill(&self, key: &str, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                break;
            };
            filled.push_str(before);
            filled.push_str(&self.value(name).map_err(|problem| {
                let name = printable::line(name);
                format!("has ${{{name}}} in {}: {problem}", printable::line(key))
            })?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, name: &str) -> Result<String, &'static str> {
        let (name, default) = match name.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (name, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let found = match name {
            "workspaceFolder" => Some(self.folder.to_string_lossy().into_owned()),
            "userHome" => (self.environment)("HOME"),
            "pathSeparator" | "/" => Some(std::path::MAIN_SEPARATOR.to_string()),
            name if name.starts_with("input:") => {
                return Err("it would be asked for; write ${env:NAME} and export that variable");
            }
            name => (self.environment)(name),
        };
        match (found, default) {
            (Some(value), _) => Ok(value),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err("the variable is not set; export it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr3t";

    fn read_with(text: &str, name: Option<&str>) -> Result<HostServer, String> {
        let variables = Variable {
            folder: PathBuf::from("/project"),
            environment: &|name| (name == "KEY").then(|| SECRET.to_owned()),
        };
        parse(text, name, &variables)
    }

    #[test]
    fn file_of_each_host_is_read() {
        let program = HostServer::Program {
            command: vec!["npx".into(), "-y".into(), "a/project".into()],
            variables: Variables(vec![("TOKEN".into(), SECRET.into()), ("N".into(), "1".into())]),
            folder: None,
        };
        for text in [
            // Claude Code expands variables without a prefix.
            r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "a${FOLDER:-/project}"], "env": {"TOKEN": "${KEY}", "N": "1"}}}}"#,
            // Cursor names the environment, VS Code allows comments and commas at the end.
            r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "a${workspaceFolder}"], "env": {"TOKEN": "${env:KEY}", "N": 1}}}}"#,
            "{\n // a comment\n \"inputs\": [], \"servers\": {\"a\": {\"type\": \"stdio\", \"command\": \"npx\", \
             \"args\": [\"-y\", \"a${workspaceFolder}\"], \"env\": {\"TOKEN\": \"s3cr3t\", \"N\": \"1\", \"X\": null},},},}",
            r#"{"mcp": {"servers": {"a": {"command": "npx", "args": ["-y", "a/project"], "env": {"TOKEN": "s3cr3t", "N": "1"}}}}}"#,
        ] {
            let found = read_with(text, Some("a")).unwrap();
            let HostServer::Program {
                command,
                variables: Variables(mut variables),
                folder,
            } = found
            else {
                panic!("{text}");
            };
            // A file says nothing by the order of its variables.
            variables.sort();
            variables.reverse();
            let variables = Variables(variables);
            assert_eq!(
                HostServer::Program {
                    command,
                    variables,
                    folder
                },
                program,
                "{text}"
            );
        }
        let url = r#"{"mcpServers": {"a": {"type": "http", "url": "https://h/mcp", "headers": {"X-Key": "Bearer ${KEY}"}}}}"#;
        assert_eq!(
            read_with(url, None).unwrap(),
            HostServer::Address {
                url: "https://h/mcp".to_owned(),
                headers: vec!["X-Key: Bearer s3cr3t".to_owned()],
            }
        );
    }

    #[test]
    fn mistakes_are_named_without_values() {
        let two = r#"{"servers": {"a": {"command": "x"}, "b": {"url": "http://h"}}}"#;
        for (text, name, expected) in [
            ("{\"mcpServers\": {", None, "no JSON at line 1"),
            ("{\"a\": s3cr3t}", None, "no JSON at line 1"),
            ("", None, "has no object \"mcpServers\""),
            ("[]", None, "has no object \"mcpServers\""),
            (two, None, "choose a server by --server: it has a, b"),
            (two, Some("c"), "there is no server \"c\": it has a, b"),
            (
                r#"{"servers": {}}"#,
                None,
                "choose a server by --server: it has none",
            ),
            (
                r#"{"servers": {"a": "s3cr3t"}}"#,
                None,
                "is not written as hosts read it",
            ),
            (
                r#"{"servers": {"a": {"command": "x", "args": "s3cr3t"}}}"#,
                None,
                "is not written as",
            ),
            (
                r#"{"servers": {"a": {"command": "x", "env": {"K": ["s3cr3t"]}}}}"#,
                None,
                "at env.K",
            ),
            (
                r#"{"servers": {"a": {"type": "sse", "url": "x"}}}"#,
                None,
                "type \"http\"",
            ),
            (
                r#"{"servers": {"a": {"type": "ws", "url": "x"}}}"#,
                None,
                "it can be \"stdio\" or \"http\"",
            ),
            (
                r#"{"servers": {"a": {}}}"#,
                None,
                "neither \"command\" nor \"url\"",
            ),
            (
                r#"{"servers": {"a": {"command": "x", "url": "y"}}}"#,
                None,
                "leave one",
            ),
            (
                r#"{"servers": {"a": {"command": "x", "envFile": "s3cr3t"}}}"#,
                None,
                "export its variables",
            ),
            (
                r#"{"servers": {"a": {"command": "x", "env": {"K": "${input:k}"}}}}"#,
                None,
                "${input:k} in env.K",
            ),
            (
                r#"{"servers": {"a": {"url": "${GONE}"}}}"#,
                None,
                "${GONE} in url: the variable is not set",
            ),
        ] {
            let error = read_with(text, name).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains(SECRET), "{error}");
        }
        let missing = read(Path::new("/nowhere/mcp.json"), None).unwrap_err();
        assert!(missing.starts_with("/nowhere/mcp.json: cannot be read") && missing.contains(".mcp.json"));
    }
}
