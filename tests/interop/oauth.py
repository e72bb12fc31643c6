"""The scenarios of the official Python client before a service that lets in only callers with tokens of an issuer.

`oauth_provider.mjs` issues the tokens and writes the log that the steps are judged by: what the client was answered, and
what tokens it was given.
"""

import asyncio
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

import scenario
from scenario import URI, check

FIRST_TEXT = "first text\n"
CALLBACK = "http://127.0.0.1/callback"


class Storage:
    """Keeps tokens for one run, and knows one public client."""

    def __init__(self, client):
        self.client, self.tokens = client, None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        raise scenario.Failed(f"the client registered itself as {client.client_id}; it was known beforehand")


def person_provider(url, issuer):
    """A public client with a person before it, who consents by the provider's page `/person`."""
    metadata = {
        "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    answered = []

    async def redirect(address):
        async with httpx2.AsyncClient(timeout=scenario.WAIT) as browser:
            answer = await browser.post(f"{issuer}/person", content=address)
            check(answer.status_code == 200, f"the provider did not lead back from {address}: {answer.text}")
            answered.append({name: values[0] for name, values in parse_qs(urlsplit(answer.text).query).items()})

    async def callback():
        found = answered.pop()
        return AuthorizationCodeResult(code=found.get("code"), state=found.get("state"), iss=found.get("iss"))

    client = OAuthClientInformationFull(client_id="person-app", issuer=issuer, **metadata)
    return OAuthClientProvider(url, OAuthClientMetadata(**metadata), Storage(client), redirect, callback)


def credentials_for(arguments):
    """The credentials of a scenario."""
    if arguments.scenario in ("code", "refresh"):
        return person_provider(arguments.url, arguments.issuer)
    return ClientCredentialsOAuthProvider(
        arguments.url, Storage(None), "machine", "machine-secret", issuer=arguments.issuer
    )


def words(text):
    return sorted((text or "").split())


class Log:
    def __init__(self, arguments):
        self.file = Path(arguments.log)
        self.url = arguments.url
        parts = urlsplit(arguments.url)
        self.path = f"/.well-known/oauth-protected-resource{parts.path}"
        self.metadata = f"{parts.scheme}://{parts.netloc}{self.path}"

    def entries(self):
        # The last line may be half written.
        return [json.loads(line) for line in self.file.read_text().split("\n")[:-1]]

    def tokens(self):
        return [entry for entry in self.entries() if entry["kind"] == "token"]

    def exchanges(self):
        return [entry for entry in self.entries() if entry["kind"] == "exchange"]

    def challenge(self, exchange):
        """The parameters of a challenge, `error`, `scope` and so on."""
        text = exchange.get("challenge") or ""
        check(text.startswith("Bearer "), f"expected a challenge Bearer, got {text!r}")
        found = dict(re.findall(r'(\w+)="([^"]*)"', text))
        named = found.get("resource_metadata")
        check(named == self.metadata, f"the challenge names the metadata {named}, expected {self.metadata}")
        return found

    def check_first_token(self, grant):
        """401, metadata, token: in this order, and nothing was refused afterwards."""
        entries = self.entries()
        first = entries[0]
        is_refused = first["kind"] == "exchange" and not first["authorized"] and first["status"] == 401
        check(is_refused, f"expected 401 at first, got {first}")
        told = self.challenge(first)
        check("error" not in told, f"a request without a token was told of the error {told.get('error')}")
        check(told.get("scope") == "read", f"the first challenge asks for the scope {told.get('scope')}, expected read")
        metadata = [at for at, entry in enumerate(entries) if entry.get("path") == self.path and entry["status"] == 200]
        token = [at for at, entry in enumerate(entries) if entry["kind"] == "token"]
        check(metadata and token and metadata[0] < token[0], f"expected metadata, then a token, got {entries}")
        given = entries[token[0]]
        expected = (grant, self.url, "read")
        check((given["grant"], given.get("resource"), given.get("scope")) == expected, f"the first token is {given}")
        refused = [entry for entry in entries[token[0] :] if entry.get("status") == 401]
        check(not refused, f"a good token was refused: {refused}")

    def check_step_up(self, grant):
        """One 403 that names the scope, then a token with the union of scopes."""
        refused = [entry for entry in self.exchanges() if entry["status"] == 403]
        check(len(refused) == 1 and refused[0]["authorized"], f"expected 403 once, got {refused}")
        told = self.challenge(refused[0])
        is_told = (told.get("error"), told.get("scope")) == ("insufficient_scope", "tools")
        check(is_told, f"the challenge says {refused[0]['challenge']}")
        tokens = self.tokens()
        check(len(tokens) == 2, f"expected two tokens, got {tokens}")
        is_union = tokens[1]["grant"] == grant and words(tokens[1].get("scope")) == ["read", "tools"]
        check(is_union, f"the second token is {tokens[1]}")

    def check_one_session(self):
        """All requests after the first token were of one session."""
        exchanges = self.exchanges()
        opened = [entry for entry in exchanges if entry.get("rpc") == "initialize" and entry["status"] == 200]
        check(len(opened) == 1, f"expected one session, got {opened}")
        named = {entry["session"] for entry in exchanges if entry.get("session")}
        check(len(named) == 1, f"expected one session id, got {named}")


async def lists(client):
    listed = await client.resources()
    check(URI in listed, f"resources/list: {URI} is missing, got {sorted(listed)}")
    await scenario.read_same(client, FIRST_TEXT, "the read with a token")


async def steps_up(client, arguments, grant):
    """401, metadata, token, answers; then a tool that needs one more scope: 403, a token with both scopes, the answer."""
    log = Log(arguments)
    await lists(client)
    log.check_first_token(grant)
    await scenario.etag_tool(client, None)
    log.check_step_up(grant)
    await lists(client)


async def credentials(client, inbox, arguments):
    """Client credentials."""
    await steps_up(client, arguments, "client_credentials")


async def opaque(client, inbox, arguments):
    """Client credentials with tokens that the service looks up."""
    await steps_up(client, arguments, "client_credentials")


async def code(client, inbox, arguments):
    """Authorization code with PKCE."""
    await steps_up(client, arguments, "authorization_code")


async def refresh(client, inbox, arguments):
    """Tokens of a few seconds: the client refreshes them, and what it asked for is told all the same."""
    log = Log(arguments)
    if client.revision == scenario.LISTEN_REVISION:
        async with client.watching(URI) as subscription:
            how = await scenario.ended(client, subscription, "its token expired")
            check(how == "graceful", f"the listen stream ended {how} with its token, expected graceful")
    tokens = len(log.tokens())
    async with client.watching(URI):
        deadline = asyncio.get_running_loop().time() + scenario.WAIT
        while len(log.tokens()) == tokens:
            late = asyncio.get_running_loop().time() > deadline
            check(not late, f"no token was refreshed within {scenario.WAIT:.0f} s")
            await scenario.read_same(client, FIRST_TEXT, "a read while the token expires")
            await asyncio.sleep(0.1)
    # The token was let in for the leeway after its end, and the stream that it opened ended with that.
    async with client.watching(URI):
        scenario.Folder(arguments.dir).write("second text\n")
        _, uri, told = await inbox.next_update(0)
        check(uri == URI, f"the update names {uri}, expected {URI}")
        etag = await scenario.read_same(client, "second text\n", "read after the update")
        check(etag == told, f"the update said {told!r}, the read after it {etag!r}")

    grants = [token.get("grant") for token in log.tokens()]
    is_refreshed = grants[0] == "authorization_code" and len(grants) > 1 and set(grants[1:]) == {"refresh_token"}
    check(is_refreshed, f"expected a code once and refreshed tokens after it, got {log.tokens()}")
    for exchange in log.exchanges():
        if exchange["authorized"] and exchange["status"] == 401:
            told = log.challenge(exchange).get("error")
            check(told == "invalid_token", f"an expired token was answered with {exchange['challenge']}")
    if client.revision != scenario.LISTEN_REVISION:
        log.check_one_session()


SCENARIOS = {"credentials": credentials, "opaque": opaque, "code": code, "refresh": refresh}
