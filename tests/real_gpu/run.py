# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments E1 to E11 on GPU 0 and on a simulated node of the same model, and prints
one table. scripts/real-gpu calls it. Exit codes: 0, 2 for wrong arguments, 77 if there is no driver
or no GPU, else 1.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SKIP = 77
KERNELS = "spin=2000000,empty=2500"  # durations of the kernels on the simulated GPU
PROFILES = {"H200": "h200-sxm5-141gb", "H100": "h100-sxm5-80gb", "A100-SXM4-80GB": "a100-sxm4-80gb",
            "A100": "a100-sxm4-40gb", "T4": "t4"}
LARGEST_SHARE = 10 << 30
SHORTEST_RUN = 3  # seconds: a run drops its first window of 1 s and may not fill its last


class Skipped(Exception):
    """There is no driver, or no GPU."""


class Target:
    """A GPU with its driver: the machine's own, or a simulated one."""

    def __init__(self, arguments, libraries, variables):
        self.arguments = arguments
        self.libraries = libraries
        self.variables = dict(os.environ, **variables)
        line = self.run("gpu").rstrip("\n").split("\t")
        self.name, self.uuid, self.driver, version, total = line
        self.cuda = int(version)
        self.share = min(LARGEST_SHARE, int(total) // 4)

    def start(self, *command, compute=None, memory=0):
        """Starts the program; with `compute`, in a container with that part of the GPU's time."""
        line = [self.arguments.program, *command]
        variables = dict(self.variables)
        if compute is None:
            if self.libraries:
                variables["LD_LIBRARY_PATH"] = self.libraries
        else:
            line = [self.arguments.container, "--driver", self.libraries, "--gpu", self.uuid,
                    "--memory", str(memory), "--compute", str(compute), "--", *line]
        return subprocess.Popen(line, env=variables, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run(self, *command, **limits):
        return finish(self.start(*command, **limits))


def finish(process):
    output, error = process.communicate()
    if process.returncode == SKIP:
        raise Skipped(error.strip())
    if process.returncode != 0:
        sys.exit(f"real-gpu: {' '.join(process.args)} failed:\n{output}{error}")
    return output


def rows(text):
    return [tuple(line.split("\t")) for line in text.splitlines()]


def windows(text):
    """The spins per second of each window except the first, in which the program starts."""
    return [float(line.split("\t")[1]) for line in text.splitlines()
            if line.startswith("window\t")][1:]


def part(text, whole):
    """The part of the GPU that a program got, in percent, and how much it varied."""
    values = [100 * value / whole for value in windows(text)]
    return f"{statistics.mean(values):.1f} % ± {statistics.pstdev(values):.1f}"


def limited_memory(target):
    return rows(target.run("cap", compute=0, memory=target.share))


def limited_answers(target, alone):
    """E1 and E6 under the limiter, compared with the results without it."""
    known = {question: answer for _, question, answer in alone}
    digest = {question: answer for _, question, answer in rows(target.run("facts", compute=0))}
    question = "digest of all answers"
    same = "alike" if digest.get(question) == known.get(question) else "different"
    yield ("E1", "look-ups under the limiter", same)
    for name, compute in (("no limit of time", 0), ("a limit of 100 %", 1)):
        for _, what, answer in rows(target.run("launches", compute=compute)):
            more = float(answer.split()[0]) - float(known[what].split()[0])
            yield ("E6", f"{what}: the limiter adds, with {name}", f"{more:+.0f} ns")


def shares(target, seconds, wanted):
    """E7 to E9: what programs get of the GPU's time."""
    whole = statistics.mean(windows(target.run("spin", "async", seconds)))
    for kind in ("async", "sync"):
        for share in wanted:
            text = target.run("spin", kind, seconds, compute=share)
            yield ("E7", f"{kind} launches with {share:.0%} of the GPU", part(text, whole))
    for pair in ((0.3, 0.7), (0.5, 0.5)):
        both = [target.start("spin", "async", seconds, compute=share) for share in pair]
        got = [part(finish(process), whole) for process in both]
        yield ("E8", f"two programs with {pair[0]:.0%} and {pair[1]:.0%}, without the agent",
               " and ".join(got))
    for kind in ("graph", "cooperative", "extended"):
        text = target.run("spin", kind, seconds, compute=0.3)
        yield ("E9", f"{kind} launches with 30% of the GPU", part(text, whole))


def stamps(target):
    """E11: when events are stamped while another program has the GPU."""
    busy = target.start("spin", "async", "4")
    busy.stdout.readline()  # its first line says that it spins
    found = rows(target.run("stamps"))
    finish(busy)
    return found


def measure(target, seconds, wanted, limited):
    """All rows of a target, in the order of the experiments."""
    found = [("", "GPU, driver, CUDA version", f"{target.name}, {target.driver}, {target.cuda}")]
    found += rows(target.run("facts")) + rows(target.run("memory")) + rows(target.run("launches"))
    found += stamps(target)
    if limited:
        found += limited_memory(target)
        found += limited_answers(target, found)
        found += shares(target, str(seconds), wanted)
    return sorted(found, key=lambda row: int(row[0][1:] or 0))


class Simulation:
    """A simulated node with a GPU of the given name and a driver of the given version."""

    def __init__(self, arguments, name="", driver="", cuda=0):
        self.folder = tempfile.TemporaryDirectory(prefix="real-gpu-")
        base = next((profile for part_of, profile in PROFILES.items() if part_of in name),
                    "a100-sxm4-80gb")
        profile = f"base: {base}\nname: real-gpu\nnode: {{gpus: 1, nvlink: none}}\n"
        if driver:
            profile += (f'driver: {{version: {driver}, '
                        f'cuda: "{cuda // 1000}.{cuda % 1000 // 10}"}}\n')
        path = pathlib.Path(self.folder.name)
        (path / "profile.yaml").write_text(profile, encoding="utf-8")
        subprocess.run([os.path.join(arguments.bin, "simgpu"), "create", "--root", path / "driver",
                        "--profile", path / "profile.yaml", "--library-dir", arguments.lib,
                        "--dev-root", path, "--device-files"], check=True,
                       stdout=subprocess.DEVNULL)
        libraries = str(path / "driver/usr/lib/x86_64-linux-gnu")
        self.target = Target(arguments, libraries, {"SIMGPU_DEV_ROOT": str(path),
                                                    "SIMGPU_KERNEL_NS": KERNELS})


def folder_of_driver():
    """The folder of the machine's libcuda.so.1, which the dynamic linker knows."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], text=True, stdout=subprocess.PIPE,
                            check=False).stdout
    for line in listed.splitlines():
        if line.strip().startswith("libcuda.so.1 ") and "x86-64" in line:
            return str(pathlib.Path(line.split("=> ")[1]).parent)
    raise Skipped("this machine has no libcuda.so.1: install NVIDIA's driver, or name its folder "
                  "with --driver")


def table(measured, simulated):
    """A Markdown table with a row for each question that either GPU has answered."""
    lines = ["| | asked | measured | simulation |", "|---|---|---|---|"]
    answers = [{row[:2]: row[2] for row in found} for found in (measured, simulated)]
    questions = list(dict.fromkeys(row[:2] for row in measured + simulated))
    questions.sort(key=lambda question: int(question[0][1:] or 0))
    for question in questions:
        cells = [*question, *(found.get(question, "–") for found in answers)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def seconds_of_runs(text):
    if not text.isdecimal() or int(text) < SHORTEST_RUN:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of at least {SHORTEST_RUN} seconds")
    return int(text)


def parts_of_gpu(text):
    try:
        parts = [float(part_of) for part_of in text.split(",")]
    except ValueError:
        parts = []
    if not parts or not all(0 < part_of <= 1 for part_of in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of parts of the GPU: give numbers from 0 to 1, like 0.3,0.7")
    return parts


def main():
    parser = argparse.ArgumentParser(prog="real-gpu")
    parser.add_argument("--program", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--container", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--lib", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--driver", help="the folder of libcuda.so.1 and libnvidia-ml.so.1")
    parser.add_argument("--seconds", type=seconds_of_runs, default=15,
                        help="of each run of E7 to E9")
    parser.add_argument("--shares", type=parts_of_gpu, default="0.1,0.3,0.5,0.7,0.9", help="of E7")
    parser.add_argument("--simulation-only", action="store_true", help="without a real GPU")
    parser.add_argument("--json", help="a file for all rows")
    arguments = parser.parse_args()
    limited = os.geteuid() == 0
    if not limited:
        print("Without root there is no container: E7 to E9 and all about the limiter are left out",
              file=sys.stderr)
    try:
        measured, simulation = [], None
        if arguments.simulation_only:
            simulation = Simulation(arguments)
        else:
            real = Target(arguments, arguments.driver or folder_of_driver(), {})
            measured = measure(real, arguments.seconds, arguments.shares, limited)
            simulation = Simulation(arguments, real.name, real.driver, real.cuda)
    except Skipped as reason:
        print(f"SKIPPED: {reason}")
        return SKIP
    simulated = measure(simulation.target, arguments.seconds, arguments.shares, limited)
    print(table(measured, simulated))
    if arguments.json:
        result = {"measured": measured, "simulation": simulated}
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
