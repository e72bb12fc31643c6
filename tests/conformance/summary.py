"""Turns one run of the conformance suite into counts; the suite's own verdict on the baseline is what counts.

Reads the suite's checks.json files and its log. Prints `PASSED FAILED` on stdout for the caller and, on stderr, what a
person wants to know. Scenarios the requirement set runs without scoring them are told, and count if `judged` is `every`.
"""

import json
import re
import sys
from pathlib import Path

VERDICTS = {
    "Expected failures": "expected",
    "Unexpected failures": "unexpected",
    "Stale baseline entries": "stale",
}
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def scenario_results(output_dir):
    """Scenario name to its list of checks."""
    found = {}
    for file in sorted(Path(output_dir).glob("*/checks.json")):
        name = re.sub(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$", "", file.parent.name).removeprefix("server-")
        # `server-stateless` is stored as `server-server-stateless`: the first prefix is the suite's, the rest the name.
        found[name] = json.loads(file.read_text())
    return found


def required_scenarios(requirements):
    """The scenarios a frozen set scores for servers; None where the suite has no such set."""
    path = Path(requirements)
    if not path.exists():
        return None
    names, inside = set(), False
    for line in path.read_text().splitlines():
        if re.match(r"\w+:", line):
            inside = line.startswith("server:")
        elif inside and (entry := re.match(r"\s+- ([\w-]+)", line)):
            names.add(entry.group(1))
    return names


def baseline_verdicts(log):
    """What the suite said about the baseline: entries by verdict."""
    entries = {kind: [] for kind in VERDICTS.values()}
    kind = None
    for line in COLOR.sub("", log).splitlines():
        heading = next((VERDICTS[text] for text in VERDICTS if line.startswith(text)), None)
        if heading:
            kind = heading
        elif kind and (entry := re.match(r"  [~✓✗] (\S+)$", line)):
            entries[kind].append(entry.group(1))
        else:
            kind = None
    return entries


def message_of(entry, results):
    """Why a check or a scenario failed, in the suite's words."""
    scenario, _, check_id = entry.partition(":")
    for check in results.get(scenario, []):
        if check["status"] in ("FAILURE", "WARNING") and check_id in ("", check["id"]):
            return f"{check['status'].lower()}: " + " ".join((check.get("errorMessage") or check["description"]).split())
    return "no message"


def main(output_dir, log_file, code, requirements, judged):
    def tell(text):
        print(text, file=sys.stderr)

    log = Path(log_file).read_text(errors="replace")
    results = scenario_results(output_dir)
    required = required_scenarios(requirements)
    scored = results if required is None else {name: checks for name, checks in results.items() if name in required}
    verdicts = baseline_verdicts(log)
    expected = {entry.partition(":")[0] for entry in verdicts["expected"]}
    unexpected = {entry.partition(":")[0] for entry in verdicts["unexpected"]}
    passed = sum(check["status"] == "SUCCESS" for checks in scored.values() for check in checks)
    failures = [f"{entry}: {message_of(entry, results)}" for entry in verdicts["unexpected"]]
    failures += [f"{entry}: passes now; remove it from the baseline" for entry in verdicts["stale"]]
    failures += [f"{name}: the suite has no result" for name in sorted((required or set()) - set(results))]
    if not scored:
        failures.append("the suite ran no scenario")
    unscored = [name for name in results if name not in scored]
    broken = [name for name in unscored if any(check["status"] == "FAILURE" for check in results[name])]
    if judged == "every":
        passed += sum(check["status"] == "SUCCESS" for name in unscored for check in results[name])
        failures += [f"{name}: {message_of(name, results)}" for name in broken]
    if int(code) != 0 and not failures:
        failures.append(f"the suite ended with code {code}; last line: {(log.split(chr(10)) or [''])[-2:]}")

    clean = len(scored) - len(expected | unexpected)
    tell(
        f"{Path(output_dir).name}: {len(scored)} scenarios: {clean} passed, {len(expected - unexpected)} failed as expected, "
        f"{len(unexpected)} failed; checks: {passed} passed, {len(verdicts['expected'])} failed as expected, "
        f"{len(failures)} failed"
    )
    for failure in failures:
        tell(f"  FAIL {failure}")
    if unscored:
        tell(f"  not scored: {len(unscored)} scenarios, {len(broken)} of them with failures: {', '.join(broken) or 'none'}")
    print(passed, len(failures))


main(*sys.argv[1:])
