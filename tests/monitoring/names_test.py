#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each alert is named in the tests of alerts, and each metric that alerts and dashboards name exists.

usage: names_test.py ALERTS TESTS REFERENCE
"""
import pathlib
import re
import sys

# Made by Prometheus itself.
BUILT_IN = {"up", "ALERTS"}


def metrics_of(text):
    """The metric families that a text names. _bucket, _count and _sum are series of a histogram."""
    found = set(re.findall(r"\b(?:tessera|DCGM|container)_\w+\b(?!\*)", text))
    return {re.sub(r"(seconds)_(bucket|count|sum)$", r"\1", name) for name in found}


def main():
    alerts, tests, reference = (pathlib.Path(path) for path in sys.argv[1:4])
    known = set(re.findall(r"`(\w+)`", reference.read_text()))
    tested = tests.read_text()
    problems = [f"{alerts}: alert {name} has no test in {tests}"
                for name in re.findall(r"alert: (\w+)", alerts.read_text()) if name not in tested]
    for file in [alerts, *sorted((alerts.parent / "dashboards").glob("*.json"))]:
        text = file.read_text()
        if file.suffix == ".json":
            text = "\n".join(re.findall(r'"(?:expr|query)": "((?:[^"\\]|\\.)*)"', text))
        problems += [f"{file}: no program serves metric {name}: {reference} has all"
                     for name in sorted(metrics_of(text) - known - BUILT_IN)]
    print("\n".join(problems) or "every alert is tested, and every metric exists")
    return 1 if problems else 0


sys.exit(main())
