//! The paths of the API: the table by which requests are answered and the OpenAPI document is made.

use super::path::RESOURCES;

/// The path of one session, without its id.
const SESSIONS: &str = "/v1/sessions/";

/// A path of the API, with the part of it that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiPath<'p> {
    Resources,
    Resource(&'p str),
    Touch(&'p str),
    Subscribers(&'p str),
    Sessions,
    Session(&'p str),
    Sinks,
    Cluster,
    Upstreams,
    Stats,
    OpenApi,
    Health,
    Ready,
}

impl<'p> ApiPath<'p> {
    /// Every path.
    pub(super) const ALL: [ApiPath<'static>; 13] = [
        ApiPath::Resources,
        ApiPath::Resource(""),
        ApiPath::Touch(""),
        ApiPath::Subscribers(""),
        ApiPath::Sessions,
        ApiPath::Session(""),
        ApiPath::Sinks,
        ApiPath::Cluster,
        ApiPath::Upstreams,
        ApiPath::Stats,
        ApiPath::OpenApi,
        ApiPath::Health,
        ApiPath::Ready,
    ];

    /// Reads the path of a request; none for one that the API does not have.
    pub(super) fn parse(path: &'p str) -> Option<ApiPath<'p>> {
        if let Some(rest) = path.strip_prefix(RESOURCES) {
            return match rest.split_once('/') {
                None if !rest.is_empty() => Some(ApiPath::Resource(rest)),
                Some((segment, "touch")) => Some(ApiPath::Touch(segment)),
                Some((segment, "subscribers")) => Some(ApiPath::Subscribers(segment)),
                _ => None,
            };
        }
        if let Some(id) = path.strip_prefix(SESSIONS) {
            // A further segment would be a path of its own, which no version of the API had.
            let is_id = !id.is_empty() && !id.contains('/');
            return is_id.then_some(ApiPath::Session(id));
        }
        // The rest have no part that varies, and are few: a comparison of each costs less than a hash.
        ApiPath::ALL.into_iter().find(|one| one.template() == path)
    }

    /// The path, with the name of its part that varies.
    pub(super) fn template(self) -> &'static str {
        match self {
            ApiPath::Resources => "/v1/resources",
            ApiPath::Resource(_) => "/v1/resources/{uri}",
            ApiPath::Touch(_) => "/v1/resources/{uri}/touch",
            ApiPath::Subscribers(_) => "/v1/resources/{uri}/subscribers",
            ApiPath::Sessions => "/v1/sessions",
            ApiPath::Session(_) => "/v1/sessions/{id}",
            ApiPath::Sinks => "/v1/subscribers",
            ApiPath::Cluster => "/v1/cluster",
            ApiPath::Upstreams => "/v1/upstreams",
            ApiPath::Stats => "/v1/stats",
            ApiPath::OpenApi => "/v1/openapi.json",
            ApiPath::Health => "/healthz",
            ApiPath::Ready => "/readyz",
        }
    }

    /// The methods that are possible, as the `Allow` header names them.
    pub(super) fn allow(self) -> &'static str {
        match self {
            ApiPath::Resources => "GET,HEAD,POST",
            ApiPath::Resource(_) => "GET,HEAD,PUT,POST,DELETE",
            ApiPath::Touch(_) => "POST",
            ApiPath::Session(_) => "GET,HEAD,DELETE",
            _ => "GET,HEAD",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_by_its_template() {
        for path in ApiPath::ALL {
            let text = path.template().replace("{uri}", "a%3Ab").replace("{id}", "s1");
            let found = ApiPath::parse(&text).unwrap();
            assert_eq!(found.template(), path.template());
        }
        for path in ["/v1/resources/", "/v1/sessions/", "/v1/resources/a/b", "/v1", "/"] {
            assert_eq!(ApiPath::parse(path), None, "{path}");
        }
    }
}
