#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/release, with the programs of build/release: the same programs give the same bytes, also without .git, the
checksums and the signature are right, and packages and archive hold what a person installs.

usage: release_test.py SOURCE_DIRECTORY
"""
import json
import os
import pathlib
import shutil
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


def release(out, *flags, source=SOURCE, **options):
    # "build" is a step of a person's release; here the programs are there.
    run(source / "scripts/release", "--no-build", "--out", out, *flags, **options)
    return {file.name: file for file in out.iterdir()}


def check(condition, what):
    if not condition:
        sys.exit(what)


def sums_of(files):
    return {name: checksum for checksum, name in map(str.split, files["SHA256SUMS"].read_text().splitlines())}


def tessera_version(files):
    packages = json.loads(files["sbom.spdx.json"].read_text())["packages"]
    return next(package["versionInfo"] for package in packages if package["name"] == "tessera")


def check_archive(work, first):
    """A copy of the tree without .git makes the same files from the same programs; only its commit is unknown."""
    copy = work / "archive"
    shutil.copytree(SOURCE, copy, symlinks=True, ignore=lambda folder, names: [
        name for name in names if name == "node_modules" or (name in (".git", "build") and pathlib.Path(folder) == SOURCE)])
    (copy / "build").mkdir()
    (copy / "build/release").symlink_to(SOURCE / "build/release")
    time = json.loads(first["sbom.spdx.json"].read_text())["creationInfo"]["created"]
    seconds = run("date", "--date", time, "+%s").strip()
    files = release(work / "third", source=copy, env=os.environ | {"SOURCE_DATE_EPOCH": seconds})
    wanted, found = sums_of(first), sums_of(files)
    check({name for name in wanted if wanted[name] != found[name]} == {"sbom.spdx.json"}, f"a release of an archive differs:\n{wanted}\n{found}")
    check(tessera_version(files).endswith("+unknown"), f"sbom.spdx.json of an archive names version {tessera_version(files)}")


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
        check_archive(work, first)
        refused = subprocess.run([SOURCE / "scripts/release", "--sign", work / "none.pem"], capture_output=True, text=True)
        check(refused.returncode == 2 and "openssl genpkey" in refused.stdout, f"a missing key: {refused}")
    print("two releases are equal, signed and complete")


main()
