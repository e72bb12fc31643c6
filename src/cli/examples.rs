//! The examples below the help of each command, with the exit codes that it alone has.

pub(super) const SERVE: &str = "\
Examples:
  tidings serve notes                       serve the files of a folder
  tidings serve notes --data kept -p 9000   keep versions, listen on port 9000
  tidings serve notes --stdio               serve one MCP client, as desktop hosts do
  tidings serve -c tidings.toml --check-config";

pub(super) const GATEWAY: &str = "\
Examples:
  tidings gateway -- npx -y some-server        on http://127.0.0.1:8808/mcp
  tidings gateway --stdio -- uvx some-server   for one MCP client, as desktop hosts start it
  tidings gateway https://mcp.example/mcp --token-file token -p 9000";

pub(super) const LS: &str = "\
Examples:
  tidings ls                 every resource, with its etag
  tidings ls demo:// --json  those that begin with demo://, one JSON object a line";

pub(super) const GET: &str = "\
Examples:
  tidings get demo://status
  tidings get -i demo://logo -o logo.png   to a file; the etag on standard error
  tidings get demo://status --if-none-match v3-1764000000";

pub(super) const PUT: &str = "\
Examples:
  echo 'all quiet' | tidings put demo://status
  tidings put demo://page page.md --title 'The page'
  tidings put demo://status new.txt --if-match v3-1764000000
  tidings put --batch changes.ndjson";

pub(super) const RM: &str = "\
Examples:
  tidings rm demo://status
  tidings rm demo://a demo://b";

pub(super) const TOUCH: &str = "\
Examples:
  tidings touch demo://status   tell every subscriber to read it again";

pub(super) const SESSIONS: &str = "\
States: current (nothing is pending), behind (it is on its way), stalled (its stream takes nothing),
away (it has no stream open).

Examples:
  tidings sessions -n 10               the ten slowest
  tidings sessions --uri demo://status
  tidings sessions --end s42";

pub(super) const WHY: &str = "\
Examples:
  tidings why s42 demo://status";

pub(super) const SUBSCRIBERS: &str = "\
Examples:
  tidings subscribers                 webhooks, journals and logs, with their health
  tidings subscribers demo://status   the sessions that are subscribed to it";

pub(super) const TOP: &str = "\
Keys: q or Esc quits.

Examples:
  tidings top
  tidings top --once -n 5   one look, also into a file or a pipe
  tidings top --json";

pub(super) const HEALTH: &str = "\
Examples:
  tidings health || echo it does not work
  tidings health --ready --url http://bus:8808
  HEALTHCHECK CMD [\"tidings\", \"health\", \"--quiet\"]   in a Dockerfile";

pub(super) const WATCH: &str = "\
Examples:
  tidings watch localhost:8808 demo://status
  tidings watch https://host/mcp note://1 --token-file token --json
  tidings watch demo://status --exec 'make page'   of the service in use
  tidings watch file:///notes.md -- npx some-server";

#[cfg(feature = "check")]
pub(super) const CHECK: &str = "\
Examples:
  tidings check localhost:8808
  tidings check localhost:8808 --uri demo://a --touch 'date | tidings put demo://a'
  tidings check --touch 'date > notes/a.md' -- my-server notes
  tidings check --touch-tool 'edit={\"text\": \"{\x1b[1mn\x1b[22m}\"}' -- my-server
  tidings check --config .mcp.json --server notes --junit report.xml

Exit codes: 0 no fault, 3 warnings alone, 1 errors.";

#[cfg(feature = "bench")]
pub(super) const BENCH: &str = "\
Examples:
  tidings bench                                   100 sessions on this machine's service
  tidings bench :9000 --sessions 2000 --html report.html
  tidings bench --publish-tool edit --publish-args '{\"uri\": \"{uri}\"}'
  tidings bench --find-max 'p99<250ms'";

pub(super) const CONTEXT: &str = "\
Examples:
  tidings context save prod https://bus.example --token-file ~/.prod-token
  tidings context use prod
  tidings ls                       of prod from now on
  tidings ls --context staging     of another one";

pub(super) const CLUSTER: &str = "\
Examples:
  tidings cluster status
  tidings cluster status --url https://node-2.example --json
  tidings cluster import kept --config tidings.toml";

pub(super) const STORE: &str = "\
Examples:
  tidings store check --data kept
  tidings store backup --url http://127.0.0.1:8808 backup.ndjson
  tidings store restore --data new backup.ndjson";

pub(super) const POLICY: &str = "\
Examples:
  tidings policy test --config tidings.toml --as editor publish demo://status";

pub(super) const TOKEN: &str = "\
Examples:
  tidings token new ci --file tokens --not-after 2999-01-31T00:00:00Z";

pub(super) const DEMO: &str = "\
Examples:
  tidings demo push
  tidings demo --fast";

pub(super) const COMPLETIONS: &str = "\
Examples:
  tidings completions bash > ~/.local/share/bash-completion/completions/tidings
  tidings completions zsh > ~/.zfunc/_tidings
  tidings completions fish > ~/.config/fish/completions/tidings.fish";

pub(super) const MAN: &str = "\
Examples:
  tidings man | man -l -
  tidings man --dir /usr/local/share/man/man1";
