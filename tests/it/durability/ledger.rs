//! The memory of a test: every version that the service has acknowledged or shown, and the requests that it
//! has not answered. It judges what a later life of the service says.

use std::collections::BTreeMap;

use tidings::Etag;
use tidings::wire::connection::HttpAnswer;

/// The content of a resource, which can be made again from its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) number: u64,
    bytes: usize,
}

impl Content {
    /// Describes a content of at least this many bytes that no other number has.
    pub(super) fn new(number: u64, bytes: usize) -> Content {
        Content { number, bytes }
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = format!("content {}\n", self.number).into_bytes();
        if self.media_type() == "application/octet-stream" {
            body.push(0xff);
        }
        let unit = body.clone();
        while body.len() < self.bytes {
            body.extend_from_slice(&unit);
        }
        body
    }

    pub(super) fn media_type(&self) -> &'static str {
        ["text/plain", "text/markdown", "application/octet-stream"][self.number as usize % 3]
    }

    pub(super) fn title(&self) -> Option<String> {
        match self.number % 2 {
            0 => Some(format!("title-{}", self.number)),
            _ => None,
        }
    }

    /// Returns the difference between this content and an answer to a GET.
    pub(super) fn difference(&self, answer: &HttpAnswer) -> Option<String> {
        let media_type = answer.head.header("content-type").unwrap_or_default();
        if answer.body != self.body() {
            let end = answer.body.len().min(30);
            let shown = String::from_utf8_lossy(&answer.body[..end]).into_owned();
            return Some(format!("{} bytes that begin {shown:?}", answer.body.len()));
        }
        (media_type != self.media_type()).then(|| format!("the media type {media_type}"))
    }
}

/// The state that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Content(Content),
    /// The content of the version before.
    Touched,
    Removed,
}

/// A request that was sent.
#[derive(Debug, Clone)]
struct Attempt {
    id: u64,
    state: State,
    /// The newest version that was known when it was sent.
    after: u64,
    is_create_only: bool,
}

/// A request that waits for its answer.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) uri: String,
    id: u64,
}

/// The versions of one resource.
#[derive(Debug, Default)]
struct History {
    versions: BTreeMap<u64, (String, State)>,
    attempts: Vec<Attempt>,
    /// True after an unanswered removal turned out to be durable, at a version that is not known.
    is_gone: bool,
    /// The greatest number of versions that such a removal may have added.
    hidden: u64,
    /// Versions that a request made which was to create and not to replace.
    created: Vec<u64>,
}

impl History {
    fn newest(&self) -> u64 {
        match self.versions.last_key_value() {
            Some((version, _)) => *version,
            None => 0,
        }
    }

    /// Returns the state of a version; a touched one has that of the version before.
    fn state(&self, version: u64) -> Option<&State> {
        let mut version = version;
        loop {
            match self.versions.get(&version) {
                Some((_, State::Touched)) => version -= 1,
                Some((_, state)) => return Some(state),
                None => return None,
            }
        }
    }

    /// Notes a version; returns the fault if it is known as another one.
    fn note(&mut self, etag: &str, version: u64, state: State) -> Result<(), String> {
        match self.versions.get(&version) {
            Some((known, _)) if known != etag => Err(format!("version {version} is {known} and {etag}")),
            Some((_, known)) if *known != state && *known != State::Touched && state != State::Touched => {
                Err(format!("{etag} names {known:?} and {state:?}"))
            }
            Some(_) => Ok(()),
            None => {
                self.versions.insert(version, (etag.to_owned(), state));
                Ok(())
            }
        }
    }

    /// Takes an attempt of this history out.
    fn take(&mut self, id: u64) -> Attempt {
        let place = self.attempts.iter().position(|attempt| attempt.id == id);
        self.attempts.swap_remove(place.expect("it was begun"))
    }

    fn acknowledge(&mut self, attempt: Attempt, etag: &str, changed: bool) -> Result<(), String> {
        let version = version_of(etag)?;
        if version < attempt.after || (changed && version == attempt.after) {
            return Err(format!("{etag} was given after version {}", attempt.after));
        }
        if changed && attempt.is_create_only {
            self.created.push(version);
        }
        if version > self.newest() {
            self.is_gone = false;
            self.hidden = 0;
        }
        self.note(etag, version, attempt.state)
    }

    /// Judges the content that a GET has shown after a restart.
    fn observe_content(&mut self, answer: &HttpAnswer) -> Result<Seen, String> {
        let etag = answer.head.etag().unwrap_or_default();
        let version = version_of(etag)?;
        let newest = self.newest();
        if version < newest {
            return Err(format!(
                "{etag} is current, though version {newest} was acknowledged"
            ));
        }
        if version == newest && !self.is_gone {
            let (known, _) = &self.versions[&version];
            if known != etag {
                return Err(format!("version {version} was {known} and is {etag}"));
            }
            return match self.state(version) {
                Some(State::Content(content)) => match content.difference(answer) {
                    Some(found) => Err(format!("{etag} has {found} in the place of {content:?}")),
                    None => Ok(Seen::Acknowledged),
                },
                Some(State::Removed) => Err(format!("{etag} was a removal, and has a body")),
                // It was touched after a version that was never seen.
                _ => Ok(Seen::Acknowledged),
            };
        }
        let attempts = self.attempts.len() as u64 + self.hidden;
        if version - newest > attempts {
            return Err(format!(
                "{etag} comes after version {newest} and {attempts} unanswered requests"
            ));
        }
        let contents = self.attempts.iter().map(|attempt| attempt.state.clone());
        let touched = self.state(newest).cloned();
        for state in contents.chain(touched) {
            if let State::Content(content) = &state
                && content.difference(answer).is_none()
            {
                self.versions.insert(version, (etag.to_owned(), state));
                self.is_gone = false;
                self.hidden = 0;
                return Ok(Seen::Unanswered);
            }
        }
        Err(format!(
            "{etag} has a content that no request had: {} bytes",
            answer.body.len()
        ))
    }

    /// Judges that a resource is not there after a restart.
    fn observe_absence(&mut self) -> Result<Seen, String> {
        let newest = self.newest();
        if self.is_gone || matches!(self.state(newest), Some(State::Removed) | None) {
            return Ok(Seen::Acknowledged);
        }
        if self
            .attempts
            .iter()
            .any(|attempt| attempt.state == State::Removed)
        {
            self.is_gone = true;
            self.hidden = self.attempts.len() as u64;
            return Ok(Seen::Unanswered);
        }
        Err(format!(
            "version {newest}, {:?}, is missing",
            self.versions[&newest]
        ))
    }

    /// Returns the versions that were created in the place of a content.
    fn created_twice(&mut self) -> Vec<u64> {
        let created = std::mem::take(&mut self.created);
        created
            .into_iter()
            .filter(|version| matches!(self.state(version - 1), Some(State::Content(_))))
            .collect()
    }
}

/// The origin of a state that was seen after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Acknowledged,
    /// It is that of a request which was durable, though it was never answered.
    Unanswered,
}

/// Every version of every resource.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    histories: BTreeMap<String, History>,
    attempts: u64,
    pub(super) violations: Vec<String>,
    pub(super) figures: Figures,
}

/// The work of a run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) acknowledged: u64,
    unchanged: u64,
    refused: u64,
    /// States that were asked for after a restart.
    pub(super) asked_for: u64,
    unanswered: u64,
    unanswered_and_durable: u64,
}

impl Acknowledged {
    /// Notes a request that is about to be sent.
    pub(super) fn begin(&mut self, uri: &str, state: State, is_create_only: bool) -> Ticket {
        self.attempts += 1;
        let id = self.attempts;
        let history = self.histories.entry(uri.to_owned()).or_default();
        let after = history.newest();
        history.attempts.push(Attempt {
            id,
            state,
            after,
            is_create_only,
        });
        let uri = uri.to_owned();
        Ticket { uri, id }
    }

    /// Notes that a request was carried out.
    pub(super) fn acknowledge(&mut self, ticket: &Ticket, etag: &str, changed: bool) {
        self.figures.acknowledged += 1;
        self.figures.unchanged += u64::from(!changed);
        let history = self.history(&ticket.uri);
        let attempt = history.take(ticket.id);
        if let Err(fault) = history.acknowledge(attempt, etag, changed) {
            self.add(&ticket.uri, fault);
        }
    }

    /// Notes that a request was refused, and changed nothing.
    pub(super) fn refuse(&mut self, ticket: &Ticket) {
        self.figures.refused += 1;
        self.history(&ticket.uri).take(ticket.id);
    }

    /// Judges the answer to a GET of a life that begins. The unanswered requests of the last one are settled
    /// by it.
    pub(super) fn observe(&mut self, uri: &str, answer: &HttpAnswer) {
        let history = self.history(uri);
        let seen = match answer.head.status {
            200 => history.observe_content(answer),
            404 => history.observe_absence(),
            status => Err(format!("a GET was answered {status}")),
        };
        let unanswered = std::mem::take(&mut history.attempts).len();
        self.figures.asked_for += 1;
        self.figures.unanswered += unanswered as u64;
        match seen {
            Ok(Seen::Acknowledged) => {}
            Ok(Seen::Unanswered) => self.figures.unanswered_and_durable += 1,
            Err(fault) => self.add(uri, fault),
        }
    }

    /// Returns the etag and the content of a resource, if it exists and both are known.
    pub(super) fn current(&self, uri: &str) -> Option<(String, Content)> {
        let history = self.histories.get(uri)?;
        let newest = history.newest();
        let (etag, _) = history.versions.get(&newest)?;
        match history.state(newest)? {
            State::Content(content) if !history.is_gone => Some((etag.clone(), content.clone())),
            _ => None,
        }
    }

    /// Returns the newest version of every resource.
    pub(super) fn newest(&self) -> BTreeMap<String, u64> {
        let histories = self.histories.iter();
        histories
            .map(|(uri, history)| (uri.clone(), history.newest()))
            .collect()
    }

    /// Returns every version that is known, with its state.
    pub(super) fn versions(&self) -> BTreeMap<(String, u64), State> {
        let mut all = BTreeMap::new();
        for (uri, history) in &self.histories {
            for version in history.versions.keys() {
                if let Some(state) = history.state(*version) {
                    all.insert((uri.clone(), *version), state.clone());
                }
            }
        }
        all
    }

    /// Judges the creations of a life, once every answer is noted.
    pub(super) fn judge_creations(&mut self) {
        let mut faults = Vec::new();
        for (uri, history) in &mut self.histories {
            for version in history.created_twice() {
                faults.push(format!(
                    "{uri}: version {version} was created in the place of a content"
                ));
            }
        }
        self.violations.append(&mut faults);
    }

    pub(super) fn add(&mut self, uri: &str, fault: impl Into<String>) {
        self.violations.push(format!("{uri}: {}", fault.into()));
    }

    fn history(&mut self, uri: &str) -> &mut History {
        self.histories.entry(uri.to_owned()).or_default()
    }
}

/// Returns the version in an etag.
pub(super) fn version_of(etag: &str) -> Result<u64, String> {
    match etag.parse::<Etag>() {
        Ok(etag) => Ok(etag.version),
        Err(error) => Err(format!("{etag:?} is no etag: {error:?}")),
    }
}

#[cfg(test)]
mod tests {
    use tidings::wire::http1::ResponseReader;

    use super::*;

    const URI: &str = "ledger://a";

    fn state(number: u64) -> State {
        State::Content(Content::new(number, 0))
    }

    fn put(all: &mut Acknowledged, number: u64, etag: &str) {
        let ticket = all.begin(URI, state(number), false);
        all.acknowledge(&ticket, etag, true);
    }

    /// Returns the answer to a GET that has this content.
    fn shown(number: u64, etag: &str) -> HttpAnswer {
        let content = Content::new(number, 0);
        let body = content.body();
        let media_type = content.media_type();
        let text = format!("HTTP/1.1 200 OK\r\nETag: \"{etag}\"\r\nContent-Type: {media_type}\r\n\r\n");
        let mut reader = ResponseReader::default();
        reader.read(text.as_bytes(), |_| ()).unwrap();
        let head = reader.into_head().unwrap();
        HttpAnswer { head, body }
    }

    fn absent() -> HttpAnswer {
        let mut answer = HttpAnswer::default();
        answer.head.status = 404;
        answer
    }

    /// Returns the number of violations that an answer after a restart adds.
    fn violations(all: &mut Acknowledged, answer: &HttpAnswer) -> usize {
        let before = all.violations.len();
        all.observe(URI, answer);
        all.violations.len() - before
    }

    #[test]
    fn lost_or_changed_content_is_found() {
        let mut all = Acknowledged::default();
        put(&mut all, 1, "v1-7");
        put(&mut all, 2, "v2-8");
        assert_eq!(violations(&mut all, &shown(2, "v2-8")), 0);
        assert_eq!(violations(&mut all, &shown(1, "v1-7")), 1);
        assert_eq!(violations(&mut all, &shown(3, "v2-8")), 1);
        assert_eq!(violations(&mut all, &shown(2, "v2-9")), 1);
        assert_eq!(violations(&mut all, &absent()), 1);
    }

    #[test]
    fn unanswered_request_may_be_durable() {
        let mut all = Acknowledged::default();
        put(&mut all, 1, "v1-7");
        all.begin(URI, state(2), false);
        assert_eq!(violations(&mut all, &shown(2, "v2-8")), 0);
        // It is settled from then on.
        assert_eq!(violations(&mut all, &shown(1, "v1-7")), 1);
        assert_eq!(violations(&mut all, &shown(3, "v3-9")), 1);
        all.begin(URI, State::Removed, false);
        assert_eq!(violations(&mut all, &absent()), 0);
    }

    #[test]
    fn unanswered_removal_has_a_version() {
        let mut all = Acknowledged::default();
        put(&mut all, 1, "v1-7");
        all.begin(URI, State::Removed, false);
        assert_eq!(violations(&mut all, &absent()), 0);
        all.begin(URI, state(2), false);
        assert_eq!(violations(&mut all, &shown(2, "v3-9")), 0);
        assert_eq!(violations(&mut all, &shown(2, "v4-9")), 1);
    }

    #[test]
    fn repeated_version_and_creation_are_found() {
        let mut all = Acknowledged::default();
        put(&mut all, 1, "v1-7");
        put(&mut all, 2, "v1-7");
        assert_eq!(all.violations.len(), 1);
        let ticket = all.begin(URI, state(3), true);
        all.acknowledge(&ticket, "v2-8", true);
        all.judge_creations();
        assert_eq!(all.violations.len(), 2);
    }
}
