#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the default policy with FGD on lists that are drawn from a list of pods: with more shares, more pods
that name a model, more pods of several GPUs, more pods without GPUs. Prints a table for tests/bench/README.md.

  tests/bench/variants_bench.py NODES.csv PODS.csv [--replay build/release/bin/sched-replay] [--seeds 42-51]
"""

import argparse
import collections
import csv
import json
import pathlib
import random
import subprocess
import tempfile

LOADS = (80, 90, 100, 130)
SIZES = ("none", "share", "1", "2", "4", "8")


def milli(row):
    return int(row["num_gpu"]) * int(row["gpu_milli"])


class Variants:
    """Lists that request as many GPUs in total as the original. The generator is seeded, so they never change."""

    def __init__(self, rows, models):
        self.random = random.Random(7)
        self.rows, self.models = rows, models
        self.none = [row for row in rows if milli(row) == 0]
        self.share = [row for row in rows if 0 < milli(row) < 1000]
        self.one = [row for row in rows if milli(row) == 1000 and row["num_gpu"] == "1"]
        self.multi = [row for row in rows if int(row["num_gpu"]) > 1]
        self.total = sum(map(milli, rows))

    def _fill(self, pool, part):
        drawn, sum_milli = [], 0
        while sum_milli < part * self.total:
            drawn.append(self.random.choice(pool))
            sum_milli += milli(drawn[-1])
        return drawn

    def part_of(self, pool, others, part):
        rest = self._fill(others, 1 - part) if part < 1 else []
        return self.none + self._fill(pool, part) + rest

    def without_gpus(self, times):
        gpus = self.share + self.one + self.multi
        return gpus + [self.random.choice(self.none) for _ in range(int(times * len(self.none)))]

    def naming_models(self, part):
        """A part of the pods name a model; each model as often as it occurs among the GPUs of the nodes."""
        names, weights = zip(*self.models.items())
        drawn = []
        for row in self.rows:
            row = dict(row)
            if milli(row) > 0 and self.random.random() < part:
                row["gpu_spec"] = self.random.choices(names, weights)[0]
            drawn.append(row)
        return drawn

    def all(self):
        others = self.one + self.multi
        small = self.share + self.one
        yield "60 % of the GPUs in shares", self.part_of(self.share, others, 0.6)
        yield "only shares", self.part_of(self.share, others, 1)
        yield "a third names a model", self.naming_models(1 / 3)
        yield "half names a model", self.naming_models(1 / 2)
        yield "50 % of the GPUs in pods of several", self.part_of(self.multi, small, 0.5)
        yield "80 %", self.part_of(self.multi, small, 0.8)
        yield "all", self.part_of(self.multi, small, 1)
        for times in (2, 3, 4, 5, 6):
            yield f"{times} times the pods without GPUs", self.without_gpus(times)


def models_of(nodes):
    models = collections.Counter()
    for node in csv.DictReader(open(nodes, newline="")):
        if int(node["gpu"]) > 0:
            models[node["model"]] += int(node["gpu"])
    return models


def replay(args, rows, folder, policies="Tessera,FGD"):
    path = pathlib.Path(folder) / "pods.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({**row, "name": f"pod-{number:06}"})
    out = subprocess.run(
        [args.replay, "--nodes", args.nodes, "--pods", path, "--policy", policies, "--seeds",
         args.seeds, "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return {mean["policy"]: mean for mean in json.loads(out)["means"]}


def line(name, means):
    ours, theirs = means["Tessera"], means["FGD"]
    at = [{point["load"]: point["allocation"] for point in mean["points"]} for mean in (ours, theirs)]
    points = " / ".join(f"{at[0][load]:.2f}" for load in LOADS)
    more = " / ".join(f"{at[0][load] - at[1][load]:+.2f}" for load in LOADS)
    refused = ", ".join(f"{ours['refused'][size]:.0f} ({theirs['refused'][size]:.0f})" for size in SIZES)
    return f"| {name} | {points} | {more} | {refused} |"


def parse_args(description, seeds):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("nodes")
    parser.add_argument("pods")
    parser.add_argument("--replay", default="build/release/bin/sched-replay")
    parser.add_argument("--seeds", default=seeds)
    return parser.parse_args()


def main():
    args = parse_args(__doc__, seeds="42-51")
    rows = list(csv.DictReader(open(args.pods, newline="")))
    loads = " / ".join(map(str, LOADS))
    print(f"| drawn list | Tessera at {loads} | more than FGD | refused at the end: pods without GPUs, GPUs of {', '.join(SIZES[1:])} (FGD) |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, drawn in Variants(rows, models_of(args.nodes)).all():
            print(line(name, replay(args, drawn, folder)), flush=True)


if __name__ == "__main__":
    main()
