#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs and libraries of an arm64 build, under qemu-user: each program starts, what is loaded into
containers needs no C library newer than 2.17, and the limiter works as the libcuda.so.1 of a program.

usage: arm64_test.py BUILD_DIRECTORY SYSROOT VERSION
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD, SYSROOT, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
PROGRAMS = ("tessera", "sched-replay", "tessera-agent", "tessera-scheduler", "tessera-operator", "tessera-console",
            "tessera-runtime", "vectoradd")

# A driver with two of its functions, and a program that calls these and one that the driver lacks.
DRIVER = """int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = 7; return 0; }
"""
CALLER = """#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void* driver = dlopen("/run/tessera/lib/libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return puts(dlerror()), 1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*count)(int*) = (int (*)(int*))dlsym(driver, "cuDeviceGetCount");
  int (*allocate)(void**, size_t) = (int (*)(void**, size_t))dlsym(driver, "cuMemAlloc_v2");
  int gpus = 0;
  void* memory = NULL;
  printf("%d ", init(0));
  printf("%d ", count(&gpus));
  printf("%d %d", gpus, allocate(&memory, 1));
  return 0;
}
"""


def check(condition, what):
    if not condition:
        sys.exit(what)


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_limiter(qemu):
    """Without the agent's file of limits, the limiter refuses the GPU and passes the rest to the driver."""
    compiler = ["aarch64-linux-gnu-gcc", f"--sysroot={SYSROOT}", f"-B{SYSROOT}/usr/lib/aarch64-linux-gnu/"]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "driver.c").write_text(DRIVER)
        (work / "caller.c").write_text(CALLER)
        run(*compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", work / "driver.c", "-o", work / "libcuda")
        run(*compiler, work / "caller.c", "-o", work / "caller")
        limiter = BUILD.resolve() / "lib/libtessera-cuda-run.so"
        script = f"""set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/tessera/real /run/tessera/lib
cp {work}/libcuda /run/tessera/real/libcuda
cp {limiter} /run/tessera/lib/libcuda.so.1
{qemu} -L {SYSROOT} {work}/caller"""
        output = run("unshare", "--mount", "sh", "-c", script)
    # CUDA_ERROR_NOT_PERMITTED and CUDA_ERROR_NOT_SUPPORTED.
    check(output == "800 0 7 801", f"a program that uses the limiter printed {output!r}")


def main():
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None:
        print("skipped: qemu-aarch64-static is not installed: apt-get install qemu-user-static")
        sys.exit(77)
    for name in PROGRAMS:
        program = BUILD / "bin" / name
        check(program.exists(), f"{program} is missing: build the targets of a release with preset release-arm64")
        check("AArch64" in run("readelf", "-h", program), f"{program} is not for arm64")
        # tessera-runtime --version runs runc, and there is no runc for arm64 here.
        if name == "tessera-runtime":
            check("Usage: tessera-runtime explain" in run(qemu, program, "explain", "--help"), f"{name} explain --help shows no usage")
        else:
            version = run(qemu, "-L", SYSROOT, program, "--version")
            check(VERSION in version, f"{name} --version prints {version!r}, not {VERSION}")
            check("usage" in run(qemu, "-L", SYSROOT, program, "--help").lower(), f"{name} --help shows no usage")
        check("runpath" not in run("readelf", "-d", program).lower(), f"{name} has a library path of this machine")
    check("INTERP" not in run("readelf", "-lW", BUILD / "bin/tessera-runtime"), "tessera-runtime is not static")
    for file in [*(BUILD / "lib").glob("libtessera-*-*.so"), BUILD / "bin/vectoradd"]:
        newer = [f"2.{minor}" for minor in re.findall(r"GLIBC_2\.(\d+)", run("readelf", "-VW", file)) if int(minor) > 17]
        check(not newer, f"{file} needs glibc {', '.join(newer)}: containers may have 2.17")
    if os.geteuid() == 0:
        check_limiter(qemu)
    else:
        print("the limiter is not tested: needs root for a mount namespace")
    print("all programs run under qemu-user")


main()
