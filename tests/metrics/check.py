"""Asks a Prometheus, which scrapes a service and a node of a cluster, every expression of the dashboard and of the
alert rules.

Starts the Prometheus on a free port of loopback and ends it. Prints `ok NAME` or `FAIL NAME: reason` per check.
"""

import argparse
import json
import math
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from traffic import Traffic

ROOT = Path(__file__).resolve().parents[2]
DATA_WAIT = 40.0  # seconds until everything has data
START_WAIT = 20.0  # seconds until Prometheus answers
SUBSTITUTES = {"$__rate_interval": "10s", "$job": ".*", "$instance": ".*"}
# A proxy named in the environment must not be asked for a loopback address.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

failures = 0


def report(name, reason=None):
    global failures
    failures += reason is not None
    print(f"ok {name}" if reason is None else f"FAIL {name}: {reason}", flush=True)


def get(url):
    with DIRECT.open(url, timeout=10) as answer:
        return answer.read().decode()


def run(name, command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=20, check=False)
    said = (done.stdout + done.stderr).strip().replace("\n", "; ")
    report(name, None if done.returncode == 0 else f"code {done.returncode}: {said[:800]}")


class Prometheus:
    """A Prometheus of its own, ended with the block."""

    def __init__(self, targets, work):
        self.targets, self.work = targets, work

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = self.work / "prometheus.yml"
        config.write_text(
            "global: { scrape_interval: 1s, evaluation_interval: 1s }\n"
            f"rule_files: [{json.dumps(str(ROOT / 'docs/alerts.yml'))}]\n"
            f"scrape_configs: [{{ job_name: tidings, static_configs: [{{ targets: {json.dumps(self.targets)} }}] }}]\n"
        )
        self.url = f"http://127.0.0.1:{port}"
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.work / 'tsdb'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        self.log = open(self.work / "prometheus.log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        until = time.monotonic() + START_WAIT
        while True:
            try:
                get(f"{self.url}/-/ready")
                return self
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.__exit__()
                    raise RuntimeError(f"prometheus did not start: {error}") from None
            time.sleep(0.1)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def api(self, path, **query):
        try:
            answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"))
        except urllib.error.HTTPError as error:
            answer = json.loads(error.read())
        if answer["status"] != "success":
            raise ValueError(f"{answer.get('errorType')}: {answer.get('error')}")
        return answer["data"]

    def values(self, expression):
        result = self.api("query", query=expression)["result"]
        return [float(series["value"][1]) for series in result]


def metrics_in(expression):
    """The names of metrics in an expression, without the parts of histograms."""
    bare = re.sub(r'"[^"]*"', "", expression)
    names = re.findall(r"\b(?:tidings|process)_[a-z_]+", bare)
    documented = re.findall(r"^\| `([a-z_]+)` \| (?:gauge|counter|histogram) \|", (ROOT / "docs/metrics.md").read_text(), re.M)
    return {name if name in documented else re.sub(r"_(bucket|sum|count)$", "", name) for name in names}, set(documented)


def check_dashboard_shape(dashboard):
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    report("dashboard/ids", None if len(set(ids)) == len(ids) else "two panels share an id")
    cells = {}
    for panel in panels:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = cells.setdefault((x, y), panel["title"])
                if other != panel["title"] or x >= 24:
                    return report("dashboard/places", f"{panel['title']!r} and {other!r} overlap")
    report("dashboard/places")
    known = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(panels)))
    report("dashboard/variables", None if used <= known else f"not defined: {used - known}")


def expressions(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for variable, value in SUBSTITUTES.items():
                expression = expression.replace(variable, value)
            yield f"dashboard/{panel['title']}/{target['refId']}", expression


def check_documented(name, expression):
    used, documented = metrics_in(expression)
    if not used <= documented:
        report(name, f"not in docs/metrics.md: {used - documented}")
    return used <= documented


def check_data(prometheus, traffic, dashboard):
    """Every expression must come to show a number before the deadline."""
    waiting = dict(expressions(dashboard))
    waiting = {name: text for name, text in waiting.items() if check_documented(name, text)}
    last, until = {}, time.monotonic() + DATA_WAIT
    while waiting and time.monotonic() < until:
        for name, expression in list(waiting.items()):
            try:
                values = prometheus.values(expression)
            except ValueError as error:
                report(name, f"{expression}: {error}")
                del waiting[name]
                continue
            if values and not all(math.isnan(value) for value in values):
                report(name)
                del waiting[name]
            last[name] = values
        time.sleep(0.5)
    for name, expression in waiting.items():
        report(name, f"no number within {DATA_WAIT:.0f} s: {expression} gave {last.get(name)}; traffic: {traffic.failure}")


def check_alerts(prometheus):
    rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
    report("alerts/loaded", None if len(rules) >= 10 else f"only {len(rules)} rules")
    for rule in rules:
        name = f"alerts/{rule['name']}"
        try:
            prometheus.values(rule["query"])
        except ValueError as error:
            report(name, str(error))
            continue
        told = rule.get("annotations", {})
        if not (told.get("summary") and told.get("action") and rule.get("labels", {}).get("severity")):
            report(name, "it lacks a summary, an action or a severity")
        elif rule["health"] == "err":
            report(name, rule.get("lastError"))
        elif check_documented(name, rule["query"]):
            # Nothing is wrong with this service, so a rule that fires at once is one that cries wolf.
            wolf = rule["state"] == "firing"
            report(name, f"it fires though all is well: {rule['alerts']}" if wolf else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    target, node = (urllib.parse.urlsplit(url).netloc for url in (arguments.url, arguments.node))
    dashboard = json.loads((ROOT / "docs/grafana.json").read_text())
    run("promtool/rules", ["promtool", "check", "rules", str(ROOT / "docs/alerts.yml")])
    check_dashboard_shape(dashboard)
    traffic = Traffic(target, node)
    traffic.start()
    try:
        with Prometheus([target, node], arguments.work) as prometheus:
            check_data(prometheus, traffic, dashboard)
            check_alerts(prometheus)
        run("promtool/metrics", ["promtool", "check", "metrics"], get(f"{arguments.url}/metrics"))
    finally:
        traffic.stop()
    report("traffic", None if traffic.failure is None else repr(traffic.failure))
    sys.exit(failures > 0)


main()
