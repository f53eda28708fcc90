#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what each part of the default policy is worth: compares the policy without the part with the whole
policy, on a list of pods, on lists drawn from it, and with departures. Prints a table for tests/bench/README.md:
the change of allocation at loads 100 and 130 without the part, in percent of all GPUs, and the change of the
GPU-hours with departures in percent.

  tests/bench/ablation_bench.py NODES.csv PODS.csv [--replay build/release/bin/sched-replay] [--seeds 42-44]
"""

import collections
import csv
import json
import subprocess
import tempfile

import variants_bench

PARTS = ("rollouts", "closedform", "memo", "turnover", "reservation", "scarcity", "links")
LISTS = ("half names a model", "80 %", "3 times the pods without GPUs")
LOADS = (100, 130)


def policies():
    return "Tessera," + ",".join(f"Tessera-{part}" for part in PARTS)


def allocation(mean):
    return {point["load"]: point["allocation"] for point in mean["points"]}


def lost(means):
    whole = allocation(means["Tessera"])
    for part in PARTS:
        without = allocation(means[f"Tessera-{part}"])
        yield " / ".join(f"{without[load] - whole[load]:+.2f}" for load in LOADS)


def lost_with_departures(args):
    out = subprocess.run(
        [args.replay, "--timeline", "--nodes", args.nodes, "--pods", args.pods, "--policy", policies(),
         "--seeds", args.seeds, "--json"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    hours = collections.Counter()
    for timeline in json.loads(out)["timelines"]:
        hours[timeline["policy"]] += timeline["gpu_hours"]
    for part in PARTS:
        yield f"{100 * (hours[f'Tessera-{part}'] / hours['Tessera'] - 1):+.2f} %"


def main():
    args = variants_bench.parse_args(__doc__, seeds="42-44")
    rows = list(csv.DictReader(open(args.pods, newline="")))
    lists = [("the list", rows)] + [
        (name, drawn)
        for name, drawn in variants_bench.Variants(rows, variants_bench.models_of(args.nodes)).all()
        if name in LISTS]
    columns = []
    with tempfile.TemporaryDirectory() as folder:
        for name, drawn in lists:
            columns.append((name, list(lost(variants_bench.replay(args, drawn, folder, policies())))))
    columns.append(("GPU-hours with departures", list(lost_with_departures(args))))
    print("| without | " + " | ".join(name for name, _ in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for n, part in enumerate(PARTS):
        print(f"| {part} | " + " | ".join(cells[n] for _, cells in columns) + " |")


if __name__ == "__main__":
    main()
