"""The rules of deny.toml that need no database: licences, banned crates, sources; and the compiler that crates ask for.

For machines without cargo-deny, which takes minutes to compile. Prints `ok NAME` or `FAIL NAME: reason` per check, and
at the end `N passed, M failed`.
"""

import json
import re
import sys
import tomllib

from support import Report, expect, run

RULES = tomllib.load(open("deny.toml", "rb"))
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
# Licence texts that are alternatives, written before there was a syntax for them.
OLD_SYNTAX = {"/": " OR "}


def packages():
    """The crates that are compiled here, with all features, tests and benches."""
    host = re.search(r"^host: (.*)$", run("rustc", "-vV"), re.M)[1]
    text = run("cargo", "metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform", host)
    return json.loads(text)["packages"]


def is_allowed(licence, allowed):
    """Judges an expression of SPDX: OR, AND, WITH and parentheses."""
    for old, new in OLD_SYNTAX.items():
        licence = licence.replace(old, new)
    words = re.findall(r"\(|\)|[^\s()]+", licence)

    def any_of():
        result = all_of()
        while words and words[0] == "OR":
            words.pop(0)
            # Both sides are read, whatever the first one says.
            result = all_of() or result
        return result

    def all_of():
        result = one()
        while words and words[0] == "AND":
            words.pop(0)
            result = one() and result
        return result

    def one():
        word = words.pop(0)
        if word == "(":
            result = any_of()
            expect(words.pop(0) == ")", f"{licence!r} has no closing parenthesis")
            return result
        if words and words[0] == "WITH":
            words.pop(0)
            return f"{word} WITH {words.pop(0)}" in allowed or word in allowed
        return word in allowed

    result = any_of()
    expect(not words, f"{licence!r} goes on after its end")
    return result


def rules_judge():
    """The judge itself: what it must refuse and let pass."""
    allowed = {"MIT", "ISC", "Apache-2.0"}
    for licence, expected in (
        ("MIT", True), ("GPL-3.0", False), ("MIT OR GPL-3.0", True), ("MIT AND GPL-3.0", False), ("GPL-3.0/MIT", True),
        ("(MIT OR GPL-3.0) AND ISC", True), ("(GPL-2.0 OR GPL-3.0) AND ISC", False), ("Apache-2.0 WITH LLVM-exception", True),
        ("ISC AND (MIT AND GPL-3.0 OR MIT)", True),
    ):  # fmt: skip
        expect(is_allowed(licence, allowed) is expected, f"{licence} is judged {not expected}")


def licences(found):
    allowed = set(RULES["licenses"]["allow"])
    refused = [f"{each['name']} {each['version']}: {each['license']}" for each in found if not is_allowed(each["license"] or "none", allowed)]
    expect(not refused, f"licences that deny.toml does not allow: {refused}")


def bans(found):
    banned = {ban["crate"]: ban["reason"] for ban in RULES["bans"]["deny"]}
    refused = [f"{each['name']} {each['version']}: {banned[each['name']]}" for each in found if each["name"] in banned]
    expect(not refused, f"banned crates: {refused}")


def wildcards(found):
    refused = [f"{each['name']} asks for {part['name']} *" for each in found if each["source"] is None for part in each["dependencies"] if part["req"] == "*"]
    expect(not refused, f"dependencies without a version: {refused}")


def sources():
    lock = tomllib.load(open("Cargo.lock", "rb"))
    refused = [each["name"] for each in lock["package"] if each.get("source", REGISTRY) != REGISTRY]
    expect(not refused, f"crates that come from elsewhere than the registry: {refused}")
    unproved = [each["name"] for each in lock["package"] if "source" in each and "checksum" not in each]
    expect(not unproved, f"crates without a checksum: {unproved}")


def oldest_compiler(found):
    """No crate asks for a newer compiler than this project promises."""

    def number(text):
        return tuple(map(int, (text.split(".") + ["0", "0"])[:3]))

    promised = tomllib.load(open("Cargo.toml", "rb"))["workspace"]["package"]["rust-version"]
    newer = [f"{each['name']} {each['version']}: {each['rust_version']}" for each in found if each["rust_version"] and number(each["rust_version"]) > number(promised)]
    expect(not newer, f"rust-version is {promised}; these crates need more: {newer}")


def main():
    report = Report()
    found = packages()
    expect(len(found) > 100, "the dependencies are missing")
    report.check("deny/judge", rules_judge)
    report.check("deny/licences", licences, found)
    report.check("deny/bans", bans, found)
    report.check("deny/wildcards", wildcards, found)
    report.check("deny/sources", sources)
    report.check("deny/compiler", oldest_compiler, found)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed > 0)


main()
