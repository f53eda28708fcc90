#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/release, with the programs of build/release: the same programs give the same bytes, also without .git, the
checksums and the signature are right, and packages and archive hold what a person installs.

usage: release_test.py SOURCE_DIRECTORY [all]

With "all" the release is for amd64 and arm64, with the programs of build/release-arm64 too.
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
NATIVE = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
ARCHITECTURES = ["amd64", "arm64"] if sys.argv[2:] == ["all"] else [NATIVE]
MACHINES = {"amd64": "X86-64", "arm64": "AArch64"}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def release(out, *flags, source=SOURCE, **options):
    # A person's release also builds the programs. Here they are built already.
    run(source / "scripts/release", "--no-build", "--arch", "all" if len(ARCHITECTURES) > 1 else NATIVE, "--out", out, *flags, **options)
    return {file.name: file for file in out.iterdir()}


def check(condition, what):
    if not condition:
        sys.exit(what)


def sums_of(files):
    return {name: checksum for checksum, name in map(str.split, files["SHA256SUMS"].read_text().splitlines())}


def tessera_version(files):
    packages = json.loads(files["sbom.spdx.json"].read_text())["packages"]
    return next(package["versionInfo"] for package in packages if package["name"] == "tessera")


def check_without_git(work, first):
    """A copy of the tree without .git makes the same files from the same programs; only its commit is unknown."""
    copy = work / "archive"
    shutil.copytree(SOURCE, copy, symlinks=True, ignore=lambda folder, names: [
        name for name in names if name == "node_modules" or (name in (".git", "build") and pathlib.Path(folder) == SOURCE)])
    (copy / "build").mkdir()
    for preset in ("release", "release-arm64")[:len(ARCHITECTURES)]:
        (copy / "build" / preset).symlink_to(SOURCE / "build" / preset)
    time = json.loads(first["sbom.spdx.json"].read_text())["creationInfo"]["created"]
    seconds = run("date", "--date", time, "+%s").strip()
    files = release(work / "third", source=copy, env=os.environ | {"SOURCE_DATE_EPOCH": seconds})
    wanted, found = sums_of(first), sums_of(files)
    check({name for name in wanted if wanted[name] != found[name]} == {"sbom.spdx.json"}, f"a release of an archive differs:\n{wanted}\n{found}")
    check(tessera_version(files).endswith("+unknown"), f"sbom.spdx.json of an archive names version {tessera_version(files)}")


def check_archive(archive, arch, work):
    with tarfile.open(archive) as tar:
        names = {pathlib.Path(name).name for name in tar.getnames()}
        check({"tessera", "kubectl-tessera", "tessera-runtime", "libtessera-cuda-dev.so", "LICENSE"} <= names, f"{archive}: {names}")
        check(all(member.uid == 0 for member in tar), f"{archive} has files of a user of this machine")
        tar.extractall(work / arch)
    for file in sorted((work / arch).glob("*/*/*")):
        check(MACHINES[arch] in run("readelf", "-h", file), f"{archive}: {file.name} is not for {arch}")


def check_packages(files, arch, work):
    for name, wanted in (("tessera-runtime", "./usr/bin/tessera-runtime"), ("tessera-cli", "./usr/bin/kubectl-tessera -> tessera")):
        deb = next(file for file_name, file in files.items() if file_name.startswith(name + "_") and file_name.endswith(f"_{arch}.deb"))
        check(run("dpkg-deb", "--field", deb, "Architecture").strip() == arch, f"{deb} is not for {arch}")
        check(wanted in run("dpkg-deb", "--contents", deb), f"{deb} lacks {wanted}")
        root = work / arch / name
        run("dpkg-deb", "--extract", deb, root)
        program = root / "usr/bin" / name.replace("-cli", "")
        check(MACHINES[arch] in run("readelf", "-h", program), f"the program of {deb} is not for {arch}")
        if arch == NATIVE:
            check("usage" in run(program, "--help").lower(), f"the program of {deb} does not run")


def check_image(archive, root):
    with tarfile.open(archive) as tar:
        def read(name):
            return json.load(tar.extractfile(name))

        def blob(descriptor):
            return read("blobs/" + descriptor["digest"].replace(":", "/"))

        if len(ARCHITECTURES) == 1:
            check(read(read("manifest.json")[0]["Config"])["architecture"] == NATIVE, f"{archive} is not for {NATIVE}")
            return
        manifests = [blob(each) for each in blob(read("index.json")["manifests"][0])["manifests"]]
        configs = [blob(manifest["config"]) for manifest in manifests]
        found = [config["architecture"] for config in configs]
        check(found == ARCHITECTURES, f"{archive} is for {found}")
        # The image has all libraries that its program needs.
        layer = tar.extractfile("blobs/" + manifests[-1]["layers"][0]["digest"].replace(":", "/"))
        with tarfile.open(fileobj=layer) as files:
            files.extractall(root)
    qemu = shutil.which("qemu-aarch64-static")
    check(qemu, "qemu-aarch64-static is not installed: apt-get install qemu-user-static")
    run(qemu, "-L", root, f"{root}{configs[-1]['config']['Entrypoint'][0]}", "--version")


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

        for arch in ARCHITECTURES:
            check_archive(next(file for name, file in first.items() if name.endswith(f"-linux-{arch}.tar.gz")), arch, work)
            check_packages(first, arch, work)
        for name in ("agent", "scheduler", "operator", "console", "vectoradd"):
            check_image(first[name + ".tar"], work / name)
        manifests = [file.read_text() for name, file in sorted(first.items()) if name.endswith(".yaml")]
        for manifest, image in zip(manifests, ("agent", "operator"), strict=True):
            check(f"tessera.dev/{image}:" in manifest and ":dev\n" not in manifest, f"{image}: the manifest names no released image")
        ids = {package["SPDXID"].removeprefix("SPDXRef-") for package in json.loads(first["sbom.spdx.json"].read_text())["packages"]}
        wanted = {f"{name}-{arch}" for name in ("libgrpc-dev", "libstdc---12-dev", "libssl3", "libc6") for arch in ARCHITECTURES}
        check({"tessera", "npm-preact", *wanted} <= ids, f"sbom.spdx.json lists {ids}")
        check_without_git(work, first)
        refused = subprocess.run([SOURCE / "scripts/release", "--sign", work / "none.pem"], capture_output=True, text=True)
        check(refused.returncode == 2 and "openssl genpkey" in refused.stdout, f"a missing key: {refused}")
    print("two releases are equal, signed and complete")


main()
