//! Rules that give rights: an allow-list over patterns.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tidings_actors::rights::Audience;
use tidings_actors::{ResourceUri, UriPattern};

use super::authorize::{Authorize, Verdict};
use super::principal::Principal;
use super::right::{Object, Right};
use crate::config::RuleConfig;

/// The error of a rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {number}. [[auth.rule]]: {reason}")]
pub struct InvalidRule {
    /// Its place in the file, from 1.
    pub number: usize,
    /// The mistake and the remedy.
    pub reason: String,
}

/// An object, whose text is read once for all rules.
struct Judged<'a> {
    object: Object<'a>,
    /// The URI of a resource; none if the text is none.
    uri: Option<ResourceUri>,
}

impl<'a> Judged<'a> {
    fn read(object: Object<'a>) -> Judged<'a> {
        let uri = match object {
            Object::Resource(text) => ResourceUri::new(text).ok(),
            _ => None,
        };
        Judged { object, uri }
    }
}

/// A set of objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ObjectPattern {
    /// A bare `*`.
    All,
    Resources(UriPattern),
    Tools(NamePattern),
    Prompts(NamePattern),
    Methods(NamePattern),
}

/// A name, or the beginning of names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NamePattern {
    stem: String,
    is_prefix: bool,
}

impl NamePattern {
    fn read(text: &str) -> NamePattern {
        let stem = text.strip_suffix('*');
        NamePattern {
            is_prefix: stem.is_some(),
            stem: stem.unwrap_or(text).to_owned(),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self.is_prefix {
            true => name.starts_with(&self.stem),
            false => name == self.stem,
        }
    }
}

impl ObjectPattern {
    fn read(text: &str) -> Result<ObjectPattern, String> {
        if text == "*" {
            return Ok(ObjectPattern::All);
        }
        if let Some(name) = text.strip_prefix("tool:") {
            return Ok(ObjectPattern::Tools(NamePattern::read(name)));
        }
        if let Some(name) = text.strip_prefix("prompt:") {
            return Ok(ObjectPattern::Prompts(NamePattern::read(name)));
        }
        if let Some(name) = text.strip_prefix("method:") {
            return Ok(ObjectPattern::Methods(NamePattern::read(name)));
        }
        match text.parse() {
            Ok(pattern) => Ok(ObjectPattern::Resources(pattern)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn matches(&self, object: &Judged<'_>) -> bool {
        match (self, object.object) {
            (ObjectPattern::All, Object::Resource(_)) => object.uri.is_some(),
            (ObjectPattern::All, _) => true,
            (ObjectPattern::Resources(pattern), Object::Resource(_)) => match &object.uri {
                Some(uri) => pattern.matches(uri),
                None => false,
            },
            // A template is in the list if all that it stands for may be.
            (ObjectPattern::Resources(UriPattern::Prefix(prefix)), Object::Template(text)) => {
                text.starts_with(prefix)
            }
            (ObjectPattern::Resources(UriPattern::Template(template)), Object::Template(text)) => {
                template.as_str() == text
            }
            (ObjectPattern::Tools(pattern), Object::Tool(name))
            | (ObjectPattern::Prompts(pattern), Object::Prompt(name))
            | (ObjectPattern::Methods(pattern), Object::Method(name)) => pattern.matches(name),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rule {
    roles: Vec<String>,
    may: Vec<Right>,
    patterns: Vec<ObjectPattern>,
    scope: Option<String>,
}

impl Rule {
    fn read(config: &RuleConfig) -> Result<Rule, String> {
        let may: Vec<Right> = config
            .may
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?;
        let patterns: Vec<_> = config
            .r#match
            .iter()
            .map(|text| ObjectPattern::read(text))
            .collect::<Result<_, _>>()?;
        if may.is_empty() {
            return Err("may is empty; name a right".into());
        }
        if patterns.is_empty() && !may.iter().all(|right| right.is_over_service()) {
            return Err("match is missing; name the objects, such as match = [\"note://*\"]".into());
        }
        Ok(Rule {
            roles: config.roles.clone(),
            may,
            patterns,
            scope: config.scope.clone(),
        })
    }

    /// Returns true if the rule is meant for the principal, whatever the scopes of its token.
    fn applies_to(&self, principal: &Principal) -> bool {
        match self.roles.is_empty() {
            true => !principal.is_anonymous(),
            false => self.roles.iter().any(|role| principal.has_role(role)),
        }
    }

    fn has_scope(&self, principal: &Principal) -> bool {
        match &self.scope {
            Some(scope) => principal.has_scope(scope),
            None => true,
        }
    }

    fn gives(&self, right: Right, object: &Judged<'_>) -> bool {
        if !self.may.contains(&right) {
            return false;
        }
        right.is_over_service() || self.patterns.iter().any(|pattern| pattern.matches(object))
    }
}

/// Rules that were read and are not in use yet, so that a mistake elsewhere can keep them from it.
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    /// Reads the rules of a configuration.
    ///
    /// # Errors
    /// The first rule that cannot be read.
    pub(super) fn read(rules: &[RuleConfig]) -> Result<Rules, InvalidRule> {
        let read: Result<Vec<_>, _> = read_each(rules).collect();
        read.map(Rules)
    }
}

/// Returns an error for each rule of a configuration that cannot be read.
pub(super) fn faults(rules: &[RuleConfig]) -> Vec<InvalidRule> {
    read_each(rules).filter_map(Result::err).collect()
}

fn read_each(rules: &[RuleConfig]) -> impl Iterator<Item = Result<Rule, InvalidRule>> {
    (1..)
        .zip(rules)
        .map(|(number, config)| Rule::read(config).map_err(|reason| InvalidRule { number, reason }))
}

/// The rules of a policy, which may be replaced while it is in use. Cheap to clone; all clones are one
/// policy.
#[derive(Debug, Clone, Default)]
pub struct Policy(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rules: RwLock<Arc<[Rule]>>,
    generation: AtomicU64,
}

impl Policy {
    /// Reads the rules of a configuration.
    ///
    /// # Errors
    /// The first rule that cannot be read.
    pub fn new(rules: &[RuleConfig]) -> Result<Policy, InvalidRule> {
        let policy = Policy::default();
        policy.replace(rules)?;
        Ok(policy)
    }

    /// Replaces all rules at once. Rules that are equal change nothing.
    ///
    /// # Errors
    /// The first rule that cannot be read; the rules in use stay.
    pub fn replace(&self, rules: &[RuleConfig]) -> Result<(), InvalidRule> {
        self.set(Rules::read(rules)?);
        Ok(())
    }

    /// Puts rules into use that were read before. Rules that are equal change nothing.
    pub(super) fn set(&self, rules: Rules) {
        let mut current = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        // A new number has the rights of every open session judged again.
        if current[..] == rules.0[..] {
            return;
        }
        *current = rules.0.into();
        // Below the lock, so that no judgement by the old rules carries the new number.
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    fn rules(&self) -> Arc<[Rule]> {
        self.0
            .rules
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Authorize for Policy {
    fn judge(&self, principal: &Principal, right: Right, object: Object<'_>) -> Verdict {
        let rules = self.rules();
        let object = Judged::read(object);
        let mut missing = None;
        for (index, rule) in rules.iter().enumerate() {
            if !rule.applies_to(principal) || !rule.gives(right, &object) {
                continue;
            }
            if rule.has_scope(principal) {
                return Verdict::Allowed(format!("rule {}", index + 1));
            }
            missing = missing.or(rule.scope.as_ref());
        }
        match missing {
            Some(scope) if principal.takes_scopes() => Verdict::NeedsScope(scope.clone()),
            _ => Verdict::Denied,
        }
    }

    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn may_be_told_all(&self, principal: &Principal) -> bool {
        let rules = self.rules();
        // One rule must give it: whether several together leave nothing out cannot be told from their
        // patterns.
        rules.iter().any(|rule| {
            let gives_all =
                rule.may.contains(&Right::Subscribe) && rule.patterns.contains(&ObjectPattern::All);
            gives_all && rule.applies_to(principal) && rule.has_scope(principal)
        })
    }

    /// Made of the rules that apply, so that principals with the same rights are one audience whatever their
    /// roles are called, before and after a change of other rules.
    fn audience(&self, principal: &Principal) -> Arc<dyn Audience> {
        let mut rules = self.rules().to_vec();
        rules.retain(|rule| {
            rule.may.contains(&Right::List) && rule.applies_to(principal) && rule.has_scope(principal)
        });
        let mut hasher = DefaultHasher::new();
        for rule in &rules {
            rule.patterns.hash(&mut hasher);
        }
        Arc::new(RuleAudience {
            id: hasher.finish(),
            rules,
        })
    }
}

/// The part of the lists that some rules show.
struct RuleAudience {
    id: u64,
    rules: Vec<Rule>,
}

impl RuleAudience {
    fn shows(&self, object: Object<'_>) -> bool {
        let object = Judged::read(object);
        self.rules.iter().any(|rule| rule.gives(Right::List, &object))
    }
}

impl Audience for RuleAudience {
    fn id(&self) -> u64 {
        self.id
    }

    fn shows_resource(&self, uri: &ResourceUri) -> bool {
        // Not by `Object`, which would read the text of the URI again for each resource and pattern.
        let mut patterns = self.rules.iter().flat_map(|rule| &rule.patterns);
        patterns.any(|pattern| match pattern {
            ObjectPattern::All => true,
            ObjectPattern::Resources(pattern) => pattern.matches(uri),
            ObjectPattern::Tools(_) | ObjectPattern::Prompts(_) | ObjectPattern::Methods(_) => false,
        })
    }

    fn shows_template(&self, uri_template: &str) -> bool {
        self.shows(Object::Template(uri_template))
    }

    fn shows_tool(&self, name: &str) -> bool {
        self.shows(Object::Tool(name))
    }

    fn shows_prompt(&self, name: &str) -> bool {
        self.shows(Object::Prompt(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(roles: &[&str], may: &[&str], patterns: &[&str], scope: &str) -> RuleConfig {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        RuleConfig {
            roles: owned(roles),
            may: owned(may),
            r#match: owned(patterns),
            scope: Some(scope.to_owned()).filter(|scope| !scope.is_empty()),
        }
    }

    fn principal(roles: &[&str]) -> Principal {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Principal::builder("token:a").roles(roles).build()
    }

    fn allows(policy: &Policy, principal: &Principal, right: Right, object: Object<'_>) -> bool {
        matches!(policy.judge(principal, right, object), Verdict::Allowed(_))
    }

    #[test]
    fn what_no_rule_gives_is_denied() {
        let policy = Policy::new(&[
            rule(&["reader"], &["read", "list"], &["note://*", "tool:get_*"], ""),
            rule(&["ops"], &["admin"], &[], ""),
        ])
        .unwrap();
        let reader = principal(&["reader"]);
        assert!(allows(
            &policy,
            &reader,
            Right::Read,
            Object::Resource("note://a")
        ));
        assert!(allows(
            &policy,
            &reader,
            Right::List,
            Object::Tool("get_resource_etag")
        ));
        assert!(allows(
            &policy,
            &reader,
            Right::List,
            Object::Template("note://{name}")
        ));
        for (right, object) in [
            (Right::Read, Object::Resource("secret://a")),
            (Right::Read, Object::Resource("no uri")),
            (Right::Publish, Object::Resource("note://a")),
            (Right::List, Object::Tool("other")),
            (Right::List, Object::Prompt("get_it")),
            (Right::List, Object::Template("{+all}")),
            (Right::Admin, Object::Service),
        ] {
            assert!(!allows(&policy, &reader, right, object), "{right} {object}");
        }
        assert!(allows(
            &policy,
            &principal(&["ops"]),
            Right::Admin,
            Object::Service
        ));
        assert!(!allows(
            &policy,
            &principal(&[]),
            Right::Read,
            Object::Resource("note://a")
        ));
    }

    #[test]
    fn rule_without_roles_is_for_every_credential() {
        let policy = Policy::new(&[rule(&[], &["read"], &["*"], "")]).unwrap();
        assert!(allows(
            &policy,
            &principal(&[]),
            Right::Read,
            Object::Resource("note://a")
        ));
        let anonymous = Principal::anonymous();
        assert!(!allows(
            &policy,
            &anonymous,
            Right::Read,
            Object::Resource("note://a")
        ));
    }

    #[test]
    fn bare_star_covers_every_kind_of_object() {
        let policy = Policy::new(&[rule(&["ops"], &["list", "call"], &["*"], "")]).unwrap();
        let ops = principal(&["ops"]);
        for object in [
            Object::Resource("note://a"),
            Object::Template("{+all}"),
            Object::Tool("run"),
            Object::Prompt("ask"),
        ] {
            assert!(allows(&policy, &ops, Right::List, object), "{object}");
            assert!(!allows(&policy, &ops, Right::Read, object), "{object}");
        }
        let audience = policy.audience(&ops);
        assert!(audience.shows_tool("run") && audience.shows_prompt("ask"));
        assert!(audience.shows_template("{+all}"));
        assert!(!allows(&policy, &ops, Right::Admin, Object::Service));
    }

    #[test]
    fn scope_is_named_to_those_who_can_obtain_it() {
        let policy = Policy::new(&[rule(&["ops"], &["call"], &["tool:*"], "tools")]).unwrap();
        let call = |principal: &Principal| policy.judge(principal, Right::Call, Object::Tool("run"));
        let ops = || Principal::builder("a").roles(vec!["ops".into()]);
        assert_eq!(call(&ops().build()), Verdict::Denied);
        assert_eq!(
            call(&ops().scopes(vec![]).build()),
            Verdict::NeedsScope("tools".into())
        );
        assert_eq!(
            call(&ops().scopes(vec!["tools".into()]).build()),
            Verdict::Allowed("rule 1".into())
        );
        assert_eq!(
            call(&Principal::builder("b").scopes(vec![]).build()),
            Verdict::Denied
        );
    }

    #[test]
    fn audience_depends_on_the_rights_alone() {
        let policy = Policy::new(&[
            rule(&["a", "b"], &["list"], &["note://*"], ""),
            rule(&["b"], &["list"], &["tool:*"], ""),
        ])
        .unwrap();
        let audience = |roles: &[&str]| policy.audience(&principal(roles)).id();
        assert_eq!(audience(&["a"]), audience(&["a", "c"]));
        assert_ne!(audience(&["a"]), audience(&["b"]));
        assert_eq!(audience(&["c"]), audience(&[]));
    }

    #[test]
    fn equal_rules_change_nothing() {
        let rules = [rule(&["a"], &["list"], &["note://*", "tool:get_*"], "")];
        let policy = Policy::new(&rules).unwrap();
        let before = policy.generation();
        policy.replace(&rules).unwrap();
        assert_eq!(policy.generation(), before);
        policy.replace(&[]).unwrap();
        assert_ne!(policy.generation(), before);
    }

    #[test]
    fn audience_shows_what_its_rules_list() {
        let policy = Policy::new(&[
            rule(&["a"], &["read"], &["*"], ""),
            rule(
                &["a"],
                &["list"],
                &["note://*", "demo://{name}", "a://b", "tool:*"],
                "",
            ),
        ])
        .unwrap();
        let principal = principal(&["a"]);
        let audience = policy.audience(&principal);
        for uri in [
            "note://1",
            "demo://1",
            "demo://1/2",
            "a://b",
            "a://bc",
            "tool:x",
            "secret://1",
        ] {
            let shown = allows(&policy, &principal, Right::List, Object::Resource(uri));
            assert_eq!(
                audience.shows_resource(&ResourceUri::new(uri).unwrap()),
                shown,
                "{uri}"
            );
        }
    }

    #[test]
    fn method_needs_a_rule_of_its_own() {
        let policy = Policy::new(&[rule(&["a"], &["call"], &["method:acme/*", "tool:run"], "")]).unwrap();
        let principal = principal(&["a"]);
        for (object, expected) in [
            (Object::Method("acme/reset"), true),
            (Object::Method("other/reset"), false),
            (Object::Method("run"), false),
            (Object::Tool("acme/reset"), false),
        ] {
            assert_eq!(
                allows(&policy, &principal, Right::Call, object),
                expected,
                "{object}"
            );
        }
    }

    #[test]
    fn invalid_rule_keeps_the_old_ones() {
        let policy = Policy::new(&[rule(&[], &["read"], &["*"], "")]).unwrap();
        let before = policy.generation();
        let error = policy.replace(&[rule(&[], &["read"], &[], "")]).unwrap_err();
        assert_eq!(error.number, 1);
        assert_eq!(policy.generation(), before);
        assert!(allows(
            &policy,
            &principal(&[]),
            Right::Read,
            Object::Resource("note://a")
        ));
    }
}
