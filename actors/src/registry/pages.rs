//! The parts of pages of the lists, as an audience sees them.

use std::sync::Arc;

use super::Registry;
use crate::messages::Scanned;
use crate::model::{Etag, ListQuery, Prompt, Resource, ResourceUri, Tool};

/// The most items that one request looks at for an audience, so that the requests behind it do not wait while
/// a long list that the audience does not see is searched.
const SCAN_MAX: usize = 1_000;

impl Registry {
    /// A part of the resource list as far as its versions may be seen.
    pub(super) fn resources_page(&self, query: &ListQuery) -> Scanned<(Arc<Resource>, Etag)> {
        let uris = self.catalog.listed_after(query.after.as_deref());
        let entry = |uri: &ResourceUri| {
            if !query.has(|audience| audience.shows_resource(uri)) {
                return None;
            }
            // The index alone: a change that is not visible yet must not show in a page. So a page may have
            // to look at more than `limit` resources to be full, and only a short one is the last.
            let entry = self.etag_index.get(uri.as_str())?;
            let listed = entry.resource.descriptor().listed;
            listed.then_some((entry.resource, entry.etag))
        };
        scan(query, uris, |uri| uri.as_str(), entry)
    }

    /// A part of the tools.
    pub(super) fn tools_page(&self, query: &ListQuery) -> Scanned<Arc<Tool>> {
        let tools = self.catalog.tools_after(query.after.as_deref());
        scan(
            query,
            tools,
            |tool| tool.name(),
            |tool| {
                query
                    .has(|audience| audience.shows_tool(tool.name()))
                    .then(|| tool.clone())
            },
        )
    }

    /// A part of the prompts.
    pub(super) fn prompts_page(&self, query: &ListQuery) -> Scanned<Arc<Prompt>> {
        let prompts = self.catalog.prompts_after(query.after.as_deref());
        scan(
            query,
            prompts,
            |prompt| prompt.name(),
            |prompt| {
                query
                    .has(|audience| audience.shows_prompt(prompt.name()))
                    .then(|| prompt.clone())
            },
        )
    }
}

/// Takes items until there are as many as asked for, or as many were looked at as one request may.
fn scan<'a, I: 'a, T>(
    query: &ListQuery,
    items: impl Iterator<Item = &'a I>,
    name: impl Fn(&'a I) -> &'a str,
    take: impl Fn(&'a I) -> Option<T>,
) -> Scanned<T> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    for item in items {
        found.extend(take(item));
        looked_at += 1;
        let enough = query.audience.is_some() && looked_at >= SCAN_MAX;
        if found.len() >= query.limit || enough {
            let go_on = Some(name(item).to_owned());
            return Scanned { found, go_on };
        }
    }
    let go_on = None;
    Scanned { found, go_on }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Audience;

    struct Even;

    impl Audience for Even {
        fn id(&self) -> u64 {
            1
        }
        fn shows_resource(&self, _: &ResourceUri) -> bool {
            true
        }
        fn shows_template(&self, _: &str) -> bool {
            true
        }
        fn shows_tool(&self, name: &str) -> bool {
            name.ends_with(['0', '2', '4', '6', '8'])
        }
        fn shows_prompt(&self, _: &str) -> bool {
            true
        }
    }

    fn part(names: &[String], limit: usize, audience: bool) -> (usize, Option<String>) {
        let mut query = ListQuery::of_all(None, limit);
        if audience {
            query.audience = Some(Arc::new(Even));
        }
        let Scanned { found, go_on } = scan(
            &query,
            names.iter(),
            |name| name,
            |name| query.has(|audience| audience.shows_tool(name)).then_some(()),
        );
        (found.len(), go_on)
    }

    #[test]
    fn part_ends_at_its_limit_or_after_the_longest_scan() {
        let names: Vec<String> = (0..1_500).map(|number| format!("{number:04}")).collect();
        assert_eq!(part(&names, 3, true), (3, Some("0004".to_owned())));
        assert_eq!(part(&names, 9_999, true), (500, Some("0999".to_owned())));
        assert_eq!(part(&names[..9], 9_999, true), (5, None));
        assert_eq!(part(&names, 9_999, false), (1_500, None));
    }
}
