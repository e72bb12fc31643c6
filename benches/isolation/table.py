"""Prints the table of `benches/isolation/run` from its reports: medians over the rounds, and ratios of medians."""

import json
import statistics
import sys
from pathlib import Path

# Each with the variant that it is compared with: the same readers without the trouble.
VARIANTS = [
    ("alone", None, "900 sessions that read, alone"),
    ("stalled", "alone", "and 100 that read nothing"),
    ("slow", "alone", "and 100 that read 1 KiB/s"),
    ("reading", "alone", "and 100 that read"),
    ("sinks", "reading", "1,000 that read, beside a hanging webhook, a full disk and a WebSocket that never reads"),
]


def group(report, name):
    return next((one for one in report["groups"] if one["name"] == name), None)


def reports(folder, name):
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}-*.json"))]


def times(all_of_one, percentile):
    return [group(report, "reading")["latency"][percentile] / 1000 for report in all_of_one]


def spread(values, digits=1):
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def owed_and_merged(all_of_one):
    """Returns the share of the updates of silent sessions that was merged into later ones."""
    shares = []
    for report in all_of_one:
        for name in ("stalled", "slow"):
            one = group(report, name)
            if one and one["owed"]:
                shares.append(100 * one["conflated"] / one["owed"])
    return f"{statistics.median(shares):.0f} %" if shares else ""


def main():
    folder = Path(sys.argv[1])
    all_reports = {name: reports(folder, name) for name, _, _ in VARIANTS}
    whole = True
    print("| sessions | p50 ms | p99 ms (min..max) | p99, ratio of medians | merged for the others | missing finals | server CPU % | test CPU % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, twin, words in VARIANTS:
        ours = all_reports[name]
        if not ours:
            print(f"| {words} | no report |")
            whole = False
            continue
        ratio = ""
        if twin and all_reports[twin]:
            quotient = statistics.median(times(ours, "p99_us")) / statistics.median(times(all_reports[twin], "p99_us"))
            ratio = f"{quotient:.2f}"
        missing = sum(one["missing_finals"] for report in ours for one in report["groups"])
        merged = owed_and_merged(ours)
        if name in ("stalled", "slow") and merged == "0 %":
            print(f"{name}: nothing was merged, so nobody was ever behind and this shows nothing")
            whole = False
        cpu = statistics.median(report["server"]["cpu_percent"] for report in ours)
        own = statistics.median(report["own"]["cpu_percent"] for report in ours)
        print(
            f"| {words} | {statistics.median(times(ours, 'p50_us')):.1f} | {spread(times(ours, 'p99_us'))} | {ratio} "
            f"| {merged} | {missing} | {cpu:.0f} | {own:.0f} |"
        )
        whole = whole and missing == 0 and not any(report["problems"] for report in ours)
    memory = folder / "memory.json"
    if memory.exists():
        report = json.loads(memory.read_text())
        server = report["server"]
        print(
            f"memory at 1,000 updates/s beside 100 that read nothing, over {report['measured_s']:.0f} s: "
            f"{server['growth_kib_per_minute']:.0f} KiB per minute, {server['idle_kib']} KiB before, {server['after_kib']} KiB after"
        )
    seen = [json.loads(path.read_text()) for path in sorted(folder.glob("sinks-*.json.seen"))]
    for trouble in sorted({name for one in seen for name in one}):
        fields = sorted({field for one in seen for field in one.get(trouble, {})})
        values = (f"{field} {spread([one[trouble][field] for one in seen if one.get(trouble, {}).get(field) is not None], 2)} s" for field in fields)
        print(f"{trouble}: " + ", ".join(values))
    sys.exit(0 if whole else 1)


main()
