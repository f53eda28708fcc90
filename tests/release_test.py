#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/release, with the programs of build/release: the same programs give the same bytes, the checksums and
the signature are right, and packages and archive hold what a person installs.

usage: release_test.py SOURCE_DIRECTORY
"""
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

SOURCE = pathlib.Path(sys.argv[1])


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def release(out, *flags):
    # "build" is a step of a person's release; here the programs are there.
    run(SOURCE / "scripts/release", "--no-build", "--out", out, *flags)
    return {file.name: file for file in out.iterdir()}


def check(condition, what):
    if not condition:
        sys.exit(what)


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        key, public = work / "key.pem", work / "public.pem"
        run("openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
        run("openssl", "pkey", "-in", key, "-pubout", "-out", public)
        first = release(work / "first", "--sign", key)
        sums = first["SHA256SUMS"].read_text()
        second = release(work / "second")
        check(sums == second["SHA256SUMS"].read_text(), f"two releases differ:\n{sums}\n{second['SHA256SUMS'].read_text()}")
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=work / "first")
        run("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", first["SHA256SUMS"],
            "-sigfile", first["SHA256SUMS.sig"])

        archive = next(file for name, file in first.items() if name.endswith("-linux-amd64.tar.gz"))
        with tarfile.open(archive) as tar:
            names = {pathlib.Path(name).name for name in tar.getnames()}
            check({"tessera", "kubectl-tessera", "tessera-runtime", "libtessera-cuda-dev.so", "LICENSE"} <= names, f"{archive}: {names}")
            check(all(member.uid == 0 for member in tar), f"{archive} has files of a user of this machine")
        for name, wanted in (("tessera-runtime", "./usr/bin/tessera-runtime"), ("tessera-cli", "./usr/bin/kubectl-tessera -> tessera")):
            deb = next(file for file_name, file in first.items() if file_name.startswith(name + "_"))
            check(wanted in run("dpkg-deb", "--contents", deb), f"{deb} lacks {wanted}")
            root = work / name
            run("dpkg-deb", "--extract", deb, root)
            check("usage" in run(root / "usr/bin" / name.replace("-cli", ""), "--help").lower(), f"the program of {deb} does not run")
        manifest = next(file for name, file in first.items() if name.endswith(".yaml")).read_text()
        check("tessera.dev/agent:dev" not in manifest and "tessera.dev/agent:" in manifest, "the manifests name no released image")
        names = {package["name"] for package in json.loads(first["sbom.spdx.json"].read_text())["packages"]}
        check({"tessera", "libgrpc++-dev", "libssl3", "libc6"} <= names, f"sbom.spdx.json lists {names}")
        refused = subprocess.run([SOURCE / "scripts/release", "--sign", work / "none.pem"], capture_output=True, text=True)
        check(refused.returncode == 2 and "openssl genpkey" in refused.stdout, f"a missing key: {refused}")
    print("two releases are equal, signed and complete")


main()
