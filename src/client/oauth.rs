//! Tokens of an OAuth 2.1 authorization server: obtained when the server asks for one, and renewed.
//!
//! The server names its authorization server (RFC 9728), which describes itself (RFC 8414). The flows are
//! client credentials, and authorization code with PKCE and a redirect to this machine. Nothing of them is
//! logged, since a code and a token are secrets.

mod discovery;
mod endpoint;
mod redirect;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use reqwest::Url;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::credentials::{Challenge, Credentials, CredentialsError, TokenFuture, TokenSource, read_secret};
use crate::http_client;
use discovery::AuthorizationServer;
use endpoint::{TokenAnswer, TokenEndpoint};
use redirect::Redirect;

/// A token is renewed this long before it ends, so that it does not end on its way.
const RENEW_BEFORE: Duration = Duration::from_secs(10);

/// The time in which the user must have answered in the browser.
const USER_TIMEOUT: Duration = Duration::from_secs(300);

/// The time that a request waits while another one obtains a token.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);

/// The number of scopes that are asked for together.
const SCOPES_MAX: usize = 64;

/// Shows the user an address that is to be opened in a browser.
type ShowUrl = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
enum Flow {
    ClientCredentials,
    AuthorizationCode(ShowUrl),
}

/// A client that is registered at an authorization server, and the way it obtains tokens.
#[derive(Clone)]
pub struct OAuthClient {
    id: String,
    secret_file: Option<PathBuf>,
    scopes: BTreeSet<String>,
    flow: Flow,
}

impl OAuthClient {
    /// Returns a client that obtains tokens with its own secret: the content of a file, which is read for
    /// each token.
    pub fn with_secret(id: &str, secret_file: impl Into<PathBuf>) -> OAuthClient {
        OAuthClient {
            id: id.to_owned(),
            secret_file: Some(secret_file.into()),
            scopes: BTreeSet::new(),
            flow: Flow::ClientCredentials,
        }
    }

    /// Returns a client that obtains tokens with the consent of a user within five minutes: `show` is handed
    /// the address that the user opens in a browser on this machine.
    pub fn with_user(id: &str, show: impl Fn(&str) + Send + Sync + 'static) -> OAuthClient {
        OAuthClient {
            id: id.to_owned(),
            secret_file: None,
            scopes: BTreeSet::new(),
            flow: Flow::AuthorizationCode(Arc::new(show)),
        }
    }

    /// Authenticates a client of [`with_user`](Self::with_user) with the secret in this file.
    #[must_use]
    pub fn and_secret(mut self, secret_file: impl Into<PathBuf>) -> OAuthClient {
        self.secret_file = Some(secret_file.into());
        self
    }

    /// Asks for these scopes as well as for those that the server names.
    #[must_use]
    pub fn scopes<'s>(mut self, scopes: impl IntoIterator<Item = &'s str>) -> OAuthClient {
        self.scopes.extend(scopes.into_iter().map(str::to_owned));
        self
    }

    /// Adds the tokens for the server at `url` to `credentials`.
    ///
    /// # Errors
    /// [`CredentialsError::Invalid`] if `url` is not an http or https address.
    pub fn authorize(self, url: &str, credentials: Credentials) -> Result<Credentials, CredentialsError> {
        let resource = match Url::parse(url) {
            Ok(parsed) if http_client::accept_url(&parsed).is_ok() => parsed,
            _ => {
                return Err(CredentialsError::Invalid(
                    "tokens are for an http address".to_owned(),
                ));
            }
        };
        let tokens = Tokens {
            endpoint: TokenEndpoint::new(resource, &credentials),
            client: self,
            state: Mutex::new(State::default()),
        };
        Ok(credentials.with_source(Arc::new(OAuthTokens(Arc::new(tokens)))))
    }
}

impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient")
            .field("id", &self.id)
            .field("secret_file", &self.secret_file)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// A token, and the one that renews it.
struct Granted {
    value: HeaderValue,
    refresh: Option<String>,
    ends_at: Option<Instant>,
}

impl Granted {
    fn is_good(&self) -> bool {
        match self.ends_at {
            Some(at) => Instant::now() + RENEW_BEFORE < at,
            None => true,
        }
    }
}

#[derive(Default)]
struct State {
    server: Option<Arc<AuthorizationServer>>,
    granted: Option<Granted>,
    /// The scopes that were asked for.
    scopes: BTreeSet<String>,
}

/// The tokens for one server. Clones share them.
#[derive(Clone)]
struct OAuthTokens(Arc<Tokens>);

struct Tokens {
    endpoint: TokenEndpoint,
    client: OAuthClient,
    /// Held while a token is obtained, so that requests that were refused together obtain one.
    state: Mutex<State>,
}

impl Tokens {
    async fn lock(&self) -> Result<MutexGuard<'_, State>, CredentialsError> {
        match tokio::time::timeout(WAIT_TIMEOUT, self.state.lock()).await {
            Ok(state) => Ok(state),
            Err(_) => Err(grant(
                "one is being obtained; answer in the browser if you are asked there",
            )),
        }
    }

    /// Returns the token; renews it if it is about to end.
    async fn current(&self) -> Result<Option<HeaderValue>, CredentialsError> {
        let mut state = self.lock().await?;
        let Some(granted) = &state.granted else {
            return Ok(None);
        };
        if granted.is_good() {
            return Ok(Some(granted.value.clone()));
        }
        let obtained = match self.client.flow {
            Flow::ClientCredentials => self.obtain(&mut state).await,
            // Without a request that was refused, the user is not asked.
            Flow::AuthorizationCode(_) => self.refresh(&mut state).await.map(|_| ()),
        };
        if let Err(error) = obtained {
            tracing::warn!(%error, "the token is about to end and is not renewed");
        }
        Ok(state.granted.as_ref().map(|granted| granted.value.clone()))
    }

    /// Obtains a token in place of `rejected`. Returns true if there is another one.
    async fn replace(
        &self,
        rejected: Option<HeaderValue>,
        challenge: Challenge,
    ) -> Result<bool, CredentialsError> {
        let mut state = self.lock().await?;
        let held = state.granted.as_ref().map(|granted| granted.value.clone());
        // Another request has renewed it while this one waited for the lock.
        if held.is_some() && held != rejected {
            return Ok(true);
        }
        let needed = scopes_of(challenge.scope.as_deref());
        match challenge.status {
            // Asking again for the same scopes would end as before.
            403 if !challenge.is_insufficient_scope() || needed.is_subset(&state.scopes) => return Ok(false),
            _ => {}
        }
        if state.server.is_none() {
            let server = self
                .endpoint
                .discover(challenge.resource_metadata.as_deref())
                .await?;
            state.server = Some(Arc::new(server));
        }
        // A refresh keeps the scopes of the old token, so it does not help against a 403.
        let refreshed = challenge.status == 401 && self.refresh(&mut state).await?;
        if !refreshed {
            self.extend_scopes(&mut state, needed)?;
            self.obtain(&mut state).await?;
        }
        let new = state.granted.as_ref().map(|granted| granted.value.clone());
        Ok(new != rejected)
    }

    /// Adds the scopes of the options and of a challenge, or else those that the server lists.
    fn extend_scopes(&self, state: &mut State, needed: BTreeSet<String>) -> Result<(), CredentialsError> {
        state.scopes.extend(self.client.scopes.iter().cloned());
        state.scopes.extend(needed);
        // The list of the server may be wider than the task needs, so it is the last resort.
        if state.scopes.is_empty()
            && let Some(server) = &state.server
        {
            let listed = server.scopes.iter().take(SCOPES_MAX).cloned();
            state.scopes = listed.collect();
        }
        match state.scopes.len() <= SCOPES_MAX {
            true => Ok(()),
            false => Err(grant(&format!(
                "the server asks for more than {SCOPES_MAX} scopes"
            ))),
        }
    }

    /// Runs the flow and keeps its token.
    async fn obtain(&self, state: &mut State) -> Result<(), CredentialsError> {
        let Some(server) = state.server.clone() else {
            return Err(grant("the authorization server is not known"));
        };
        let scope = joined(&state.scopes);
        let answer = match &self.client.flow {
            Flow::ClientCredentials => {
                let parameters = vec![("grant_type", "client_credentials".to_owned()), ("scope", scope)];
                self.ask(&server, parameters).await?
            }
            Flow::AuthorizationCode(show) => self.ask_user(&server, scope, show).await?,
        };
        state.granted = Some(answer.into_granted(None)?);
        Ok(())
    }

    /// Renews the token with its refresh token. Returns false if there is none, or the server refuses it.
    async fn refresh(&self, state: &mut State) -> Result<bool, CredentialsError> {
        let Some(server) = state.server.clone() else {
            return Ok(false);
        };
        let Some(refresh) = state.granted.as_mut().and_then(|granted| granted.refresh.take()) else {
            return Ok(false);
        };
        let parameters = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh.clone()),
        ];
        match self.ask(&server, parameters).await {
            Ok(answer) => {
                state.granted = Some(answer.into_granted(Some(refresh))?);
                Ok(true)
            }
            Err(error) => {
                // The flow runs anew after this, so it is no failure that the user must know of.
                tracing::debug!(%error, "the token is not refreshed");
                Ok(false)
            }
        }
    }

    /// Sends a request to the token endpoint.
    async fn ask(
        &self,
        server: &AuthorizationServer,
        mut parameters: Vec<(&'static str, String)>,
    ) -> Result<TokenAnswer, CredentialsError> {
        // Read each time, so that a secret that was replaced takes effect without a restart.
        let secret = match &self.client.secret_file {
            Some(path) => Some(read_secret("client secret", path)?),
            None => None,
        };
        // Some servers refuse an empty scope, while a missing one means their default.
        parameters.retain(|(_, value)| !value.is_empty());
        // RFC 8707: a token for this server alone is of no use to another one that it is shown to.
        parameters.push(("resource", server.resource.clone()));
        self.endpoint
            .token(server, &self.client.id, secret.as_deref(), &parameters)
            .await
    }

    /// Sends the user to the authorization server and exchanges the code that comes back.
    async fn ask_user(
        &self,
        server: &AuthorizationServer,
        scope: String,
        show: &ShowUrl,
    ) -> Result<TokenAnswer, CredentialsError> {
        // Listens before the user is sent away, so that no quick answer is lost.
        let redirect = Redirect::listen(server).await?;
        show(&redirect.address(server, &self.client.id, &scope)?);
        let Ok(code) = tokio::time::timeout(USER_TIMEOUT, redirect.code()).await else {
            let seconds = USER_TIMEOUT.as_secs();
            return Err(grant(&format!("the user did not answer within {seconds} s")));
        };
        let parameters = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code?),
            ("redirect_uri", redirect.uri().to_owned()),
            ("code_verifier", redirect.verifier().to_owned()),
        ];
        self.ask(server, parameters).await
    }
}

impl TokenSource for OAuthTokens {
    fn authorization(&self) -> TokenFuture<'_, Option<HeaderValue>> {
        Box::pin(self.0.current())
    }

    fn prepare(&self) -> TokenFuture<'_, ()> {
        Box::pin(async {
            if self.0.current().await?.is_some() {
                return Ok(());
            }
            match self.0.endpoint.probe().await? {
                Some(challenge) => self.0.replace(None, challenge).await.map(drop),
                // The server lets everyone in, or cannot be reached: the request that follows says so.
                None => Ok(()),
            }
        })
    }

    fn renew<'a>(
        &'a self,
        rejected: Option<&'a HeaderValue>,
        challenge: &'a Challenge,
    ) -> TokenFuture<'a, bool> {
        Box::pin(async move {
            let tokens = self.0.clone();
            let rejected = rejected.cloned();
            let challenge = challenge.clone();
            // A request that is given up, for its time is over, must not lose the answer of a user.
            let renewal = tokio::spawn(async move { tokens.replace(rejected, challenge).await });
            match renewal.await {
                Ok(outcome) => outcome,
                Err(_) => Err(grant("the program is ending")),
            }
        })
    }
}

fn grant(reason: &str) -> CredentialsError {
    CredentialsError::Grant(reason.to_owned())
}

fn scopes_of(text: Option<&str>) -> BTreeSet<String> {
    let words = text.unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect()
}

fn joined(scopes: &BTreeSet<String>) -> String {
    let words: Vec<&str> = scopes.iter().map(String::as_str).collect();
    words.join(" ")
}
