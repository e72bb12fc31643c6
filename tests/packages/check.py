"""Runs the checks of the packages that are named, or all; tests/packages/run prepares what they need."""

import argparse
import pathlib
import sys

from support import Report

PARTS = ("crates", "debian", "images", "clusters", "http2", "proxies")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, type=pathlib.Path, help="the service")
    parser.add_argument("--static", required=True, type=pathlib.Path, help="the service, linked statically")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="a folder for what the checks leave")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    report = Report()
    for part in arguments.parts or PARTS:
        module = __import__(part)
        work = (arguments.work / part).resolve()
        work.mkdir(parents=True)
        program = arguments.static if part == "images" else arguments.program
        try:
            module.check(report, program.resolve(), work)
        except Exception as error:  # what stands before the first check failed
            def raised(error=error):
                raise error

            report.check(part, raised)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed > 0)


main()
