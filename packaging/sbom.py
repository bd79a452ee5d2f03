#!/usr/bin/env python3
"""The bill of materials of a release, CycloneDX 1.6 in JSON: every library that is linked into the programs, with
version, licence, source and checksum, from `cargo metadata` and Cargo.lock. The same commit gives the same bytes.

    packaging/sbom.py VERSION >FILE         makes it
    packaging/sbom.py VERSION --check FILE  compares it with what `cargo tree` and Cargo.lock say
"""

import json
import os
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone

TARGET = "x86_64-unknown-linux-gnu"
# Its programs have no library that those of TARGET have not, so that one bill is true of both; --check looks.
OTHER_TARGET = "aarch64-unknown-linux-gnu"
ROOT = "pve-autoscaler"


def cargo(*arguments):
    run = subprocess.run(["cargo", *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"sbom: cargo {arguments[0]} ended with {run.returncode}: {run.stderr.strip()}")
    return run.stdout


def metadata():
    return json.loads(cargo("metadata", "--format-version=1", "--locked", f"--filter-platform={TARGET}"))


def checksums():
    """Name and version of every package of Cargo.lock with its SHA-256; None for our own."""
    with open("Cargo.lock", "rb") as file:
        lock = tomllib.load(file)
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def normal(node):
    """Ids of what is linked: neither what only builds nor what only tests."""
    return sorted(
        dependency["pkg"] for dependency in node["deps"] if any(kind["kind"] is None for kind in dependency["dep_kinds"])
    )


def in_tree(target=TARGET):
    """Name and version of what `cargo tree` shows to be linked into the programs."""
    tree = cargo("tree", "--locked", "--edges=normal", "--prefix=none", "--format={p}", f"--target={target}")
    words = [line.split()[:2] for line in tree.splitlines() if line]
    return {(name, version.removeprefix("v")) for name, version in words}


def linked(data):
    """The root package's id, and what is linked with it: id to ids. `cargo metadata` counts features of tests, too, and so
    more packages than `cargo tree`."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    named = {package["id"]: (package["name"], package["version"]) for package in data["packages"]}
    root, tree = data["resolve"]["root"], in_tree()
    found, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found[package] = [other for other in normal(nodes[package]) if named[other] in tree]
            waiting.extend(found[package])
    return root, found


def component(package, sums):
    described = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
        "scope": "required",
    }
    if package["license"]:
        # Crates of long ago separate licences so.
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def make(version):
    data, sums = metadata(), checksums()
    packages = {package["id"]: package for package in data["packages"]}
    root, found = linked(data)
    main = component(packages[root], sums) | {"type": "application", "version": version}
    main.pop("scope")
    others = [component(packages[package], sums) for package in found if package != root]
    others.sort(key=lambda one: (one["name"], one["version"]))
    depends = [
        {"ref": purl(packages[package]), "dependsOn": sorted(purl(packages[other]) for other in needed)}
        for package, needed in found.items()
    ]
    depends.sort(key=lambda one: one["ref"])
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": main,
        },
        "components": others,
        "dependencies": depends,
    }
    # The same contents have the same number.
    contents = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, contents)}"
    return bom


def problems(bom, version):
    """What is wrong with it, by what cargo and Cargo.lock say in other words."""
    if bom.get("bomFormat") != "CycloneDX" or bom.get("specVersion") != "1.6":
        return ["it is no CycloneDX 1.6"]
    wrong = []
    sums = checksums()
    main = bom["metadata"]["component"]
    if (main["name"], main["version"]) != (ROOT, version):
        wrong.append(f"it is of {main['name']} {main['version']}, not of {ROOT} {version}")
    listed = {}
    for one in bom["components"]:
        key = (one["name"], one["version"])
        if key in listed:
            wrong.append(f"{key} stands in it twice")
        listed[key] = one
        if key not in sums:
            wrong.append(f"{key} is not in Cargo.lock")
        elif [hash["content"] for hash in one.get("hashes", [])] != ([sums[key]] if sums[key] else []):
            wrong.append(f"{key} has another checksum than in Cargo.lock")
        if not one.get("licenses"):
            wrong.append(f"{key} has no licence")
    wanted = {key for key in in_tree() if key[0] != ROOT}
    wrong += [f"{key} is linked and not in it" for key in sorted(wanted - listed.keys())]
    others = {key for key in in_tree(OTHER_TARGET) if key[0] != ROOT}
    wrong += [f"{key} is linked for {OTHER_TARGET} and not in it" for key in sorted(others - listed.keys() - wanted)]
    wrong += [f"{key} is in it and not linked" for key in sorted(listed.keys() - wanted)]
    known = {one["bom-ref"] for one in bom["components"]} | {main["bom-ref"]}
    for one in bom["dependencies"]:
        wrong += [f"{ref} is named and not in it" for ref in [one["ref"], *one["dependsOn"]] if ref not in known]
    missing = known - {one["ref"] for one in bom["dependencies"]}
    wrong += [f"it does not say what {ref} depends on" for ref in sorted(missing)]
    return wrong


def main():
    match sys.argv[1:]:
        case [version]:
            json.dump(make(version), sys.stdout, indent=1, sort_keys=True)
            print()
        case [version, "--check", path]:
            with open(path, encoding="utf-8") as file:
                wrong = problems(json.load(file), version)
            if wrong:
                sys.exit("\n".join(f"sbom: {path}: {problem}" for problem in wrong))
        case _:
            sys.exit("usage: packaging/sbom.py VERSION [--check FILE]")


main()
