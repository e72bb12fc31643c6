//! `GET /v1/resources`: the listed resources, a page at a time.
//!
//! A page in the order of the URIs comes from the bus. Pages that are searched or in another order are cut
//! from one copy of the list, which is made at most once a second, however many callers look at it, and on a
//! thread that carries no connections.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidings_actors::rights::{Audience, ListQuery};
use tidings_actors::{Bus, Content, Etag, Resource, ResourceUri};
use tokio::sync::Mutex;

use super::parameters::{given, page_len, query, refused, search_text};
use super::{Api, ApiResponse, json};
use crate::auth::{Caller, Object, Right};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::{caller, require};

/// The time for which a copy of the list is used.
const FRESH_FOR: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    after: Option<String>,
    limit: Option<String>,
    q: Option<String>,
    sort: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Uri,
    /// The one that changed last comes first.
    Changed,
    /// The one with the most subscribers comes first.
    Subscribers,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceItem<'a> {
    uri: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    subscribable: bool,
    /// The number of subscribers, for a caller that may know them.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribers: Option<usize>,
    #[serde(flatten)]
    version: Option<VersionItem>,
}

/// The newest version, for a caller that may read the resource.
#[derive(Serialize, JsonSchema)]
struct VersionItem {
    etag: String,
    /// The time of the last change in milliseconds since 1970, exact to a second.
    changed: u64,
    /// The length of the body; none if the body is made when it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ResourceItems<'a> {
    items: Vec<ResourceItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The number of all that the query asks for, where the list was searched or sorted.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
}

/// A part of the list.
struct ResourcePage {
    items: Vec<(Arc<Resource>, Etag)>,
    next: Option<String>,
    total: Option<usize>,
}

/// The number of subscribers of each resource that has some.
type Counts = HashMap<ResourceUri, usize>;

/// The listed resources in one order.
type Listed = Vec<(Arc<Resource>, Etag)>;

/// A copy of the list, and the time at which it was made.
type Kept = Option<(Instant, Arc<Listed>)>;

/// The newest copies of the list, which all callers share: one for each order.
#[derive(Default)]
pub(super) struct Listing {
    copies: [Mutex<Kept>; 3],
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

impl Listing {
    async fn in_order(&self, bus: &Bus, sort: Sort) -> Result<Arc<Listed>, Problem> {
        // Held while the copy is made, so that callers who come meanwhile wait for it instead of making one.
        let mut newest = self.copies[sort as usize].lock().await;
        if let Some((made, listed)) = &*newest
            && made.elapsed() < FRESH_FOR
        {
            return Ok(listed.clone());
        }
        let counts = match sort {
            Sort::Subscribers => bus.count_subscribers(None).await?,
            Sort::Uri | Sort::Changed => Counts::default(),
        };
        let bus = bus.clone();
        let listed = off_thread(move || bus.resources_by_change().map(|all| sorted(all, sort, &counts)));
        let listed = Arc::new(listed.await??);
        *newest = Some((Instant::now(), listed.clone()));
        Ok(listed)
    }
}

/// Sorts a list that stands in the order of changes.
fn sorted(mut listed: Listed, sort: Sort, counts: &Counts) -> Listed {
    match sort {
        Sort::Changed => {}
        Sort::Uri => listed.sort_unstable_by(|one, other| one.0.uri().cmp(other.0.uri())),
        // Many have none, and a stable sort keeps the order of their changes.
        Sort::Subscribers => listed.sort_by_cached_key(|(resource, _)| Reverse(counts.get(resource.uri()))),
    }
    listed
}

/// Runs `work` on a thread that carries no connections.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_stopped| ProblemKind::Unavailable.because("the service is stopping; try again later"))
}

/// The part of the list that a query asks for.
struct Selection {
    /// In lower case.
    text: String,
    sort: Sort,
    /// The URI or the number of items after which the page begins.
    after: Option<String>,
    skip: usize,
    limit: usize,
    audience: Option<Arc<dyn Audience>>,
}

impl Selection {
    fn has(&self, resource: &Resource) -> bool {
        if let Some(audience) = &self.audience
            && !audience.shows_resource(resource.uri())
        {
            return false;
        }
        let descriptor = resource.descriptor();
        let has = |text: &str| text.to_lowercase().contains(&self.text);
        // Most lists are not searched, and lower case costs more than the rest.
        self.text.is_empty()
            || has(descriptor.uri.as_str())
            || has(&descriptor.name)
            || matches!(&descriptor.title, Some(title) if has(title))
    }

    /// Cuts the page from the whole list, which stands in the order of the query.
    fn cut(&self, listed: &Listed) -> ResourcePage {
        if self.text.is_empty() && self.audience.is_none() {
            return self.cut_found(listed.iter());
        }
        let found: Vec<_> = listed.iter().filter(|(resource, _)| self.has(resource)).collect();
        self.cut_found(found.into_iter())
    }

    fn cut_found<'a>(
        &self,
        found: impl ExactSizeIterator<Item = &'a (Arc<Resource>, Etag)> + Clone,
    ) -> ResourcePage {
        let total = found.len();
        let mut skip = self.skip;
        if let (Some(after), Sort::Uri) = (&self.after, self.sort) {
            let names = found.clone().map(|(resource, _)| resource.uri().as_str());
            skip = names.take_while(|name| *name <= after.as_str()).count();
        }
        let end = skip.saturating_add(self.limit).min(total);
        let items: Vec<_> = found.skip(skip).take(self.limit).cloned().collect();
        let next = match self.sort {
            _ if end >= total => None,
            Sort::Uri => items
                .last()
                .map(|(resource, _)| resource.uri().as_str().to_owned()),
            Sort::Changed | Sort::Subscribers => Some(end.to_string()),
        };
        let total = Some(total);
        ResourcePage { items, next, total }
    }
}

impl Api {
    /// `GET /v1/resources?after=&limit=&q=&sort=`: a page of the list, ordered by URI unless `sort` says
    /// otherwise; `next` is the `after` of the next page.
    pub(super) async fn list_resources(&self, head: &Parts) -> Result<ApiResponse, Problem> {
        let query: PageQuery = query(head, "after, limit, q and sort")?;
        let caller = caller(&head.extensions)?;
        let limit = page_len(query.limit)?;
        let text = search_text(query.q)?;
        let sort = sort_of(given(query.sort).as_deref())?;
        let after = given(query.after);
        if sort == Sort::Subscribers {
            require(&head.extensions, Right::Admin, Object::Service)?;
        }
        let page = match (text.is_empty(), sort) {
            (true, Sort::Uri) => {
                let audience = caller.audience();
                let part = ListQuery {
                    after,
                    limit,
                    audience,
                };
                let page = self.bus.resources_page(part).await?;
                ResourcePage {
                    items: page.items,
                    next: page.next,
                    total: None,
                }
            }
            _ => {
                let selection = Selection {
                    text: text.to_lowercase(),
                    sort,
                    skip: skipped(sort, after.as_deref())?,
                    after,
                    limit,
                    audience: caller.audience(),
                };
                let listed = self.listing.in_order(&self.bus, sort).await?;
                off_thread(move || selection.cut(&listed)).await?
            }
        };
        let counts = self.counts_for(caller, &page).await?;
        Ok(resource_items(caller, page, counts.as_ref()))
    }

    /// Counts the subscribers of the resources of a page, if the caller may know of subscribers.
    async fn counts_for(&self, caller: &Caller, page: &ResourcePage) -> Result<Option<Counts>, Problem> {
        if !caller.sees(Right::Admin, Object::Service) {
            return Ok(None);
        }
        let uris = page.items.iter().map(|(resource, _)| resource.uri().clone());
        Ok(Some(self.bus.count_subscribers(Some(uris.collect())).await?))
    }
}

fn sort_of(parameter: Option<&str>) -> Result<Sort, Problem> {
    match parameter {
        None | Some("uri") => Ok(Sort::Uri),
        Some("changed") => Ok(Sort::Changed),
        Some("subscribers") => Ok(Sort::Subscribers),
        Some(other) => Err(refused("sort", other, "uri, changed or subscribers")),
    }
}

/// Returns the number of items before the page. The order of changes and counts has no names to go on after.
fn skipped(sort: Sort, after: Option<&str>) -> Result<usize, Problem> {
    match (sort, after) {
        (Sort::Uri, _) | (_, None) => Ok(0),
        (_, Some(text)) => match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(refused("after", text, "the `next` of a page in this order")),
        },
    }
}

fn resource_items(caller: &Caller, page: ResourcePage, counts: Option<&Counts>) -> ApiResponse {
    // The items borrow from the page, so the JSON is made without copies of their texts.
    let items = page.items.iter().map(|(resource, etag)| {
        let object = Object::Resource(resource.uri().as_str());
        let etag = caller.sees(Right::Read, object).then_some(*etag);
        let count = counts.map(|counts| counts.get(resource.uri()).copied().unwrap_or(0));
        item(resource, etag, count)
    });
    json(&ResourceItems {
        items: items.collect(),
        next: page.next,
        total: page.total,
    })
}

fn item(resource: &Resource, etag: Option<Etag>, subscribers: Option<usize>) -> ResourceItem<'_> {
    let descriptor = resource.descriptor();
    let version = etag.map(|etag| VersionItem {
        etag: etag.to_string(),
        changed: etag.updated_at.saturating_mul(1_000),
        bytes: match resource.content() {
            Content::Held(body) => Some(body.as_bytes().len()),
            Content::Lazy(_) => None,
        },
    });
    ResourceItem {
        uri: descriptor.uri.as_str(),
        name: &descriptor.name,
        title: descriptor.title.as_deref(),
        description: descriptor.description.as_deref(),
        media_type: descriptor.media_type.as_deref(),
        subscribable: descriptor.subscribable,
        subscribers,
        version,
    }
}
