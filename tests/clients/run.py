# SPDX-License-Identifier: Apache-2.0
"""Runs one unmodified NVML client against a fresh simulated node.

Usage: run.py --bin DIR --lib DIR nvidia-ml-py|nvitop|go-nvml
Exit codes: 0 good, 77 skipped (the registry cannot be reached), 1 otherwise.
"""
import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIP = 77
GPUS = 4
BUSY_GPU = 1
ALLOCATED = 256 << 20
# What the tools say when there is no network or the registry refuses: nothing that a bug of ours
# could cause.
UNREACHABLE = re.compile(
    r"Temporary failure in name resolution|No matching distribution found|Connection refused"
    r"|Network is unreachable|Read timed out|ConnectTimeout|dial tcp|no such host|i/o timeout"
    r"|403 Forbidden|502 Bad Gateway|503 Service")


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIP)


def run_or_skip(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    if done.returncode == 0:
        return
    if UNREACHABLE.search(done.stdout):
        skip(f"registry not reachable: {done.stdout.strip().splitlines()[-1]}")
    sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


@contextlib.contextmanager
def cache_folder(*inputs):
    """The folder for what the files `inputs` ask for, locked against other runs."""
    key = hashlib.sha256(sys.version.encode())
    for path in inputs:
        key.update(path.read_bytes())
    base = os.environ.get("TESSERA_CACHE") or os.path.expanduser("~/.cache/tessera")
    folder = pathlib.Path(base) / f"clients-{key.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def python_with_packages():
    """An interpreter that has the packages of requirements.txt."""
    requirements = HERE / "requirements.txt"
    with cache_folder(requirements) as folder:
        python = folder / "venv" / "bin" / "python"
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
            run_or_skip([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                         "-r", requirements])
            (folder / "ready").touch()
        return str(python)


def go_client():
    """The client of go-nvml, built."""
    sources = [HERE / "gonvml" / name for name in ("go.mod", "go.sum", "main.go")]
    with cache_folder(*sources) as folder:
        program = folder / "gonvml"
        if not program.exists():
            environment = dict(os.environ, GOFLAGS="-mod=readonly", CGO_ENABLED="1",
                               CGO_CFLAGS="-O2 -Wno-deprecated-declarations")
            run_or_skip(["go", "build", "-o", folder / "gonvml.new", "."], cwd=HERE / "gonvml",
                        env=environment)
            os.replace(folder / "gonvml.new", program)
        return str(program)


class Node:
    """A simulated node in a folder of its own."""

    def __init__(self, folder, binaries, libraries):
        self.simgpu = os.path.join(binaries, "simgpu")
        self.root = os.path.join(folder, "driver")
        self.dev_root = os.path.join(folder, "devices")
        os.makedirs(self.dev_root)
        self.call("create", "--profile", "a100-sxm4-80gb", "--gpus", str(GPUS), "--name", "client",
                  "--library-dir", libraries, "--dev-root", self.dev_root, "--device-files")
        self.libraries = os.path.join(self.root, "usr/lib/x86_64-linux-gnu")

    def call(self, *arguments):
        return subprocess.run([self.simgpu, *arguments, "--root", self.root], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def environment(self):
        return dict(os.environ, LD_LIBRARY_PATH=self.libraries, SIMGPU_DEV_ROOT=self.dev_root)


@contextlib.contextmanager
def gpu_user(node):
    """Another process that holds ALLOCATED bytes on BUSY_GPU; gives its pid."""
    command = [sys.executable, str(HERE / "allocate.py"),
               os.path.join(node.libraries, "libcuda.so.1"), str(BUSY_GPU), str(ALLOCATED)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=node.environment()) as process:
        try:
            if process.stdout.readline().strip() != "ready":
                sys.exit("the other process could not allocate")
            yield process.pid
        finally:
            process.kill()


def command_for(client):
    if client == "go-nvml":
        return [go_client()]
    script = {"nvidia-ml-py": "nvidia_ml_py_client.py", "nvitop": "nvitop_client.py"}[client]
    return [python_with_packages(), str(HERE / script)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("client", choices=["nvidia-ml-py", "nvitop", "go-nvml"])
    arguments = parser.parse_args()
    command = command_for(arguments.client)
    with tempfile.TemporaryDirectory(prefix="tessera-client-") as folder:
        node = Node(folder, arguments.bin, arguments.lib)
        with gpu_user(node) as pid:
            facts = {
                "uuids": node.call("show", "--uuids").split(),
                "name": "NVIDIA A100-SXM4-80GB",
                "busy_gpu": BUSY_GPU,
                "busy_pid": pid,
                "allocated": ALLOCATED,
                "inject_xid": [node.simgpu, "inject", "xid", "--gpu", "2", "--code", "48",
                               "--root", node.root],
                "xid_gpu": 2,
                "xid": 48,
            }
            environment = dict(node.environment(), CLIENT_FACTS=json.dumps(facts))
            done = subprocess.run(command, env=environment, timeout=120, check=False)
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
