# SPDX-License-Identifier: Apache-2.0
"""Runs one unmodified client of NVML or CUDA against a fresh simulated node.

Usage: run.py --bin DIR --lib DIR --container PROGRAM [--limited] CLIENT
With --limited the client runs in a container with a share of the first GPU (container.cc).
Exit codes: 0 success, 77 skipped (the registry cannot be reached, or root is needed), 1 otherwise.
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
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SKIP = 77
GPU_COUNT = 4
BUSY_GPU = 1
ALLOCATED_BYTES = 256 << 20
# NVIDIA's compilers refuse to load their output into a driver that is older than the compiler.
DRIVER = "575.57.08"
PROFILE = f"""base: a100-sxm4-80gb
name: client
driver: {{version: {DRIVER}}}
gpu: {{memory_mib: 81920, reserved_mib: 882, context_mib: 400}}
"""
CONTEXT_BYTES = 400 << 20
WHOLE_BYTES = (81920 - 882) << 20
SHARE_BYTES = 8 << 30
COMPUTE_SHARE = 0.3
# The script of each client in Python, and the file that lists its packages.
CLIENTS = {
    "nvidia-ml-py": ("nvidia_ml_py_client.py", "requirements.txt"),
    "nvitop": ("nvitop_client.py", "requirements.txt"),
    "cuda-bindings": ("cuda_bindings_client.py", "requirements.txt"),
    "tinygrad": ("tinygrad_client.py", "requirements.txt"),
    "cuda-core": ("cuda_core_client.py", "requirements-kernels.txt"),
    "numba-cuda": ("numba_client.py", "requirements-kernels.txt"),
    "gpustat": ("gpustat_client.py", "requirements-monitors.txt"),
    "drjit": ("drjit_client.py", "requirements-compilers.txt"),
    "taichi": ("taichi_client.py", "requirements-compilers.txt"),
    "halide": ("halide_client.py", "requirements-compilers.txt"),
    "go-nvml": None,
    "go-nvlib": None,
    "go-nvcdi": None,
}
# The duration of kernels in nanoseconds, by name.
KERNEL_NS = {"cuda-bindings": "spin=2000000", "cuda-core": "spin=2000000",
             "numba-cuda": "*=2000000", "tinygrad": "*=1000000", "drjit": "*=2000000",
             "taichi": "*=2000000", "halide": "*=2000000"}
# Messages of the tools when there is no network or the registry refuses. No error in Tessera causes
# these messages.
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
    """The folder of the packages that the files `inputs` list, locked against other runs."""
    key = hashlib.sha256(sys.version.encode())
    for path in inputs:
        key.update(path.read_bytes())
    base = os.environ.get("TESSERA_CACHE") or os.path.expanduser("~/.cache/tessera")
    folder = pathlib.Path(base) / f"clients-{key.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def python_with_packages(requirements):
    """The path of an interpreter with the packages that the file lists."""
    with cache_folder(requirements) as folder:
        python = folder / "venv" / "bin" / "python"
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
            run_or_skip([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                         "-r", requirements])
            (folder / "ready").touch()
        return str(python)


def go_client(name):
    """Builds the client in the folder `name`."""
    sources = [HERE / name / file for file in ("go.mod", "go.sum", "main.go")]
    with cache_folder(*sources) as folder:
        program = folder / name
        if not program.exists():
            environment = dict(os.environ, GOFLAGS="-mod=readonly", CGO_ENABLED="1",
                               CGO_CFLAGS="-O2 -Wno-deprecated-declarations")
            fresh = folder / f"{name}.new"
            run_or_skip(["go", "build", "-o", fresh, "."], cwd=HERE / name, env=environment)
            os.replace(fresh, program)
        return str(program)


class Node:
    """A simulated node in its own folder."""

    def __init__(self, folder, binaries, libraries, devices):
        self.simgpu = os.path.join(binaries, "simgpu")
        self.root = os.path.join(folder, "driver")
        self.dev_root = os.path.join(folder, "devices")
        os.makedirs(self.dev_root)
        profile = os.path.join(folder, "profile.yaml")
        pathlib.Path(profile).write_text(PROFILE, encoding="utf-8")
        self.call("create", "--profile", profile, "--gpus", str(GPU_COUNT), "--name", "client",
                  "--library-dir", libraries, "--dev-root", self.dev_root, f"--device-{devices}")
        self.libraries = os.path.join(self.root, "usr/lib/x86_64-linux-gnu")

    def call(self, *arguments):
        return subprocess.run([self.simgpu, *arguments, "--root", self.root], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def environment(self):
        return dict(os.environ, LD_LIBRARY_PATH=self.libraries, SIMGPU_DEV_ROOT=self.dev_root)

    def show_command(self):
        return [self.simgpu, "show", "-o", "json", "--root", self.root]

    def first_gpu(self):
        return json.loads(self.call("show", "-o", "json"))["gpus"][0]


class Container:
    """The facts about the node as seen in a container with a share of the first GPU."""

    def __init__(self, node, folder, program):
        self.node = node
        self.program = program
        self.dev_root = os.path.join(folder, "container")
        os.makedirs(os.path.join(self.dev_root, "dev"))
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            pathlib.Path(self.dev_root, "dev", name).touch()

    def command(self, command):
        return [self.program, "--driver", self.node.libraries, "--gpu",
                self.node.first_gpu()["uuid"], "--memory", str(SHARE_BYTES),
                "--compute", str(COMPUTE_SHARE), "--", *command]

    def environment(self):
        environment = dict(os.environ, SIMGPU_DEV_ROOT=self.dev_root)
        environment.pop("LD_LIBRARY_PATH", None)
        return environment


class Watch(threading.Thread):
    """Samples how much memory of the first GPU all processes use according to the device."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node = node
        self.samples = 0
        self.peak_bytes = 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.05):
            processes = self.node.first_gpu()["processes"]
            held = sum(process["bytes"] - process["contexts"] * CONTEXT_BYTES
                       for process in processes)
            self.peak_bytes = max(self.peak_bytes, held)
            self.samples += 1

    def check(self):
        """Checks that the share was never exceeded. Contexts do not count for the share."""
        self.ended.set()
        self.join()
        if self.samples == 0 or self.peak_bytes > SHARE_BYTES:
            sys.exit(f"the container had {self.peak_bytes} bytes of the GPU with a share of "
                     f"{SHARE_BYTES}, in {self.samples} samples")
        print(f"device memory: at most {self.peak_bytes >> 20} of {SHARE_BYTES >> 20} MiB")


@contextlib.contextmanager
def gpu_user(node):
    """Starts another process that holds ALLOCATED_BYTES on BUSY_GPU. Yields its pid."""
    command = [sys.executable, str(HERE / "allocate.py"),
               os.path.join(node.libraries, "libcuda.so.1"), str(BUSY_GPU), str(ALLOCATED_BYTES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=node.environment()) as process:
        try:
            if process.stdout.readline().strip() != "ready":
                sys.exit("the other process could not allocate")
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def container_toolkit(node):
    """Adds what NVIDIA's container toolkit looks for: a MIG device on the last GPU, and the socket
    of a daemon. Yields the device as "simgpu show" prints it."""
    smi = os.path.join(node.root, "usr/bin/nvidia-smi")
    gpu = str(GPU_COUNT - 1)
    for arguments in (["-i", gpu, "-mig", "1"], ["mig", "-i", gpu, "-cgi", "19", "-C"]):
        subprocess.run([smi, *arguments], check=True, env=node.environment(),
                       stdout=subprocess.DEVNULL)
    socket = pathlib.Path(node.root, "run/nvidia-persistenced/socket")
    with subprocess.Popen([node.simgpu, "serve", "--root", node.root]) as server:
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.01)
            yield json.loads(node.call("show", "-o", "json"))["gpus"][-1]["mig_devices"][0]
        finally:
            server.terminate()


def with_proc_of(node, command):
    """Returns the command with the node's files in /proc/driver. NVIDIA's container toolkit reads
    the numbers of capabilities there, even if the driver root is another folder."""
    return ["unshare", "--mount", "sh", "-c",
            'mount --bind "$0/proc/driver" /proc/driver && exec "$@"', node.root, *command]


def command_for(client):
    if client.startswith("go-"):
        return [go_client(client.replace("-", ""))]
    script, requirements = CLIENTS[client]
    return [python_with_packages(HERE / requirements), str(HERE / script)]


def nvrtc_of(python):
    """The path of NVIDIA's compiler among the packages, where tinygrad does not look for it."""
    packages = pathlib.Path(python).parents[1] / "lib"
    found = packages.glob("python*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*")
    return str(next(found, ""))


def settings_of(client, command, folder):
    """Environment variables that the programs themselves read."""
    settings = {"PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": folder,
                "SIMGPU_KERNEL_NS": KERNEL_NS.get(client, "")}
    if client == "halide":
        settings["HL_GPU_DEVICE"] = "0"  # by default, Halide chooses the last GPU
    if client == "tinygrad":
        settings.update(DEV="CUDA", NVRTC_PATH=nvrtc_of(command[0]))
    return settings


def facts_of(node, limited, busy_pid):
    return {
        "limited": limited,
        "memory": SHARE_BYTES if limited else WHOLE_BYTES,
        "context": CONTEXT_BYTES,
        "compute": COMPUTE_SHARE,
        "show": node.show_command(),
        "uuids": node.call("show", "--uuids").split(),
        "name": "NVIDIA A100-SXM4-80GB",
        "driver": DRIVER,
        "driver_root": node.root,
        "dev_root": node.dev_root,
        "allocate": str(HERE / "allocate.py"),
        "libcuda": "/run/tessera/lib/libcuda.so.1",
        "busy_gpu": BUSY_GPU,
        "busy_pid": busy_pid,
        "allocated": ALLOCATED_BYTES,
        "inject_xid": [node.simgpu, "inject", "xid", "--gpu", "2", "--code", "48",
                       "--root", node.root],
        "xid_gpu": 2,
        "xid": 48,
    }


def run_limited(node, container, client, command, folder):
    environment = dict(container.environment(), **settings_of(client, command, folder),
                       CLIENT_FACTS=json.dumps(facts_of(node, True, None)))
    watch = Watch(node)
    watch.start()
    done = subprocess.run(container.command(command), env=environment, timeout=240, check=False)
    watch.check()
    return done.returncode


def run_alone(node, client, command, folder):
    with contextlib.ExitStack() as stack:
        pid = stack.enter_context(gpu_user(node))
        facts = facts_of(node, False, pid)
        if client == "go-nvcdi":
            facts["mig"] = stack.enter_context(container_toolkit(node))
            command = with_proc_of(node, command)
        environment = dict(node.environment(), **settings_of(client, command, folder),
                           CLIENT_FACTS=json.dumps(facts))
        return subprocess.run(command, env=environment, timeout=240, check=False).returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--container", required=True)
    parser.add_argument("--limited", action="store_true")
    parser.add_argument("client", choices=list(CLIENTS))
    arguments = parser.parse_args()
    if arguments.limited and os.geteuid() != 0:
        skip("limits need root, for a mount namespace")
    devices = "nodes" if arguments.client == "go-nvcdi" else "files"
    if devices == "nodes" and os.geteuid() != 0:
        skip("only root makes device nodes")
    command = command_for(arguments.client)
    with tempfile.TemporaryDirectory(prefix="tessera-client-") as folder:
        node = Node(folder, arguments.bin, arguments.lib, devices)
        if arguments.limited:
            container = Container(node, folder, arguments.container)
            sys.exit(run_limited(node, container, arguments.client, command, folder))
        sys.exit(run_alone(node, arguments.client, command, folder))


if __name__ == "__main__":
    main()
