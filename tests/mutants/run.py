#!/usr/bin/env python3
"""Which mutants of some source files no unit test of their crate finds.

    contrib/dev mutants PATH... [--sample N] [--seed N] [--only NUMBER,...] [--resume | --lives]
                        [--near] [--filter WORD,...] [--cases N] [--seconds N] [--jobs N]

PATH: files and folders of one member of the workspace, such as src/brain/scale_down. All mutants of them are built
into one program (tool.rs). Each test is run once without a mutant, and says which mutants it comes by; each mutant, or
N of them by lot, is then switched on for the tests that come by it, the nearest and cheapest first (unit_tests.py). A
mutant is found when a test fails, and fails again, or takes ever more processor time; a run that the clock ended leaves
it undecided (trial.py). What no test finds is printed, and the exit code says 1.
Each verdict is a line of target/mutants/results: --resume leaves out what has one for the file as it is, --lives what was
found. Everything else happens on a copy of the tree below target/mutants.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import results  # noqa: E402
import unit_tests  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, "target", "mutants")
TREE = os.path.join(WORK, "tree")
LIST = re.compile(r"mutant_switch::on\((\d+)\)")
# How often what the compiler refuses is left out before it is given up.
ROUNDS = 12
# The main package is built over and over and needs no optimiser, whatever the profile says of the rest.
PROFILE = ["--config", "profile.dev.package.pve-autoscaler.opt-level=0"]


def copy_tree():
    """The tree as it is, committed or not."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        source, target = os.path.join(ROOT, name), os.path.join(TREE, name)
        if not os.path.isfile(source):
            continue
        same = os.path.exists(target) and os.path.getmtime(target) == os.path.getmtime(source)
        if not same or os.path.getsize(target) != os.path.getsize(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(source, target)


def member_of(path):
    """Name and root file of the workspace's member that a path belongs to."""
    for member in ("brain", "filters", "model", "planted"):
        if path == f"src/{member}" or path.startswith(f"src/{member}/"):
            return f"pve-autoscaler-{member}", f"src/{member}/lib.rs"
    return "pve-autoscaler", "src/lib.rs"


def files_of(paths):
    """The source files that are no tests."""
    files = []
    for path in paths:
        if path.endswith(".rs"):
            files.append(path)
        for folder, _, names in os.walk(os.path.join(ROOT, path)):
            files += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".rs")]
    return sorted(of for of in set(files) if "/tests/" not in of and not of.endswith(("/tests.rs", "lib.rs", "main.rs")))


def cargo(*arguments, **more):
    """Cargo on the copy."""
    environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(WORK, "build"))
    return subprocess.run(["cargo", *PROFILE, *arguments], cwd=TREE, env=environment, text=True, check=False, **more)


def write_mutants(tool, root, files, without):
    """Writes them into the copy; returns by number what each is."""
    for name in [root, *files]:
        shutil.copy2(os.path.join(ROOT, name), os.path.join(TREE, name))
    refused = os.path.join(WORK, "without")
    with open(refused, "w", encoding="utf-8") as file:
        file.write("\n".join(map(str, sorted(without))))
    shown = subprocess.run([tool, root, "--without", refused, *files], cwd=TREE, check=True, capture_output=True, text=True)
    digests = {file: results.digest(os.path.join(ROOT, file)) for file in files}
    mutants, before = {}, collections.Counter()
    for line in shown.stdout.splitlines():
        number, place, what = line.split("\t", 2)
        file = place.rsplit(":", 1)[0]
        # Of those of its file: what the compiler refuses depends on nothing else.
        before[file] += 1
        mutants[int(number)] = {
            "number": int(number), "file": file, "digest": digests[file], "index": before[file], "place": place, "what": what
        }
    return mutants


def build(package):
    """The program of the crate's unit tests and its folder; or the numbers of mutants in what the compiler says no to."""
    built = cargo("test", "--quiet", "-p", package, "--lib", "--no-run", "--message-format=json", stdout=subprocess.PIPE)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    if built.returncode == 0:
        for of in messages:
            if of.get("executable") and of["target"]["name"] == package.replace("-", "_"):
                return (of["executable"], os.path.dirname(of["manifest_path"])), None
        sys.exit("cargo names no program of the tests")
    numbers, said = set(), []
    for of in messages:
        message = of.get("message") or {}
        if message.get("level") != "error":
            continue
        said.append(message.get("rendered", ""))
        for span in message.get("spans", []):
            for text in span["text"]:
                part = text["text"]
                inside = part[text["highlight_start"] - 1 : text["highlight_end"] - 1]
                numbers |= {int(number) for number in LIST.findall(inside) or LIST.findall(part)}
    if not numbers:
        sys.exit("what the compiler refuses names no mutant:\n" + "\n".join(said))
    return None, numbers


def build_mutants(package, root, files):
    """The program of the tests with all mutants in it, and what each is. What the compiler refused is kept for the next time."""
    if cargo("build", "--quiet", "-p", "pve-autoscaler-mutants").returncode:
        sys.exit("the tool cannot be built")
    tool = os.path.join(WORK, "build", "debug", "mutants")
    known = os.path.join(WORK, "refused")
    key = [[file, results.digest(os.path.join(ROOT, file))] for file in files]
    without = set()
    if os.path.exists(known):
        with open(known, encoding="utf-8") as file:
            kept = json.load(file)
        if kept["of"] == key:
            without = set(kept["numbers"])
    for _ in range(ROUNDS):
        mutants = write_mutants(tool, root, files, without)
        program, refused = build(package)
        if program:
            with open(known, "w", encoding="utf-8") as file:
                json.dump({"of": key, "numbers": sorted(without)}, file)
            return program, mutants, len(without)
        without |= refused
    sys.exit("the compiler refuses ever more of them")


def choose(mutants, kept, options):
    """The numbers of those to try."""
    chosen = sorted(mutants)
    if options.only:
        chosen = [int(number) for number in options.only.split(",")]
    elif options.sample and options.sample < len(chosen):
        chosen = sorted(random.Random(options.seed).sample(chosen, options.sample))
    if options.resume:
        chosen = [number for number in chosen if not kept.verdict(mutants[number])]
    elif options.lives:
        chosen = [number for number in chosen if kept.verdict(mutants[number]) not in (None, unit_tests.FOUND)]
    return chosen


def modules_of(files, source):
    """The modules of these files, whose tests are the nearest."""
    modules = set()
    for file in files:
        path = os.path.relpath(file, source).removesuffix(".rs").removesuffix("/mod").split("/")
        modules.add("::".join(path[:-1] or path) + "::")
    return sorted(modules)


def try_all(tests, mutants, chosen, kept, jobs):
    """Tries them, and prints each that is not found; returns these. `chosen` has what other tests said of each before."""
    done, lives = 0, {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as workers:
        runs = {workers.submit(tests.judge, number, mutants[number]["file"]): number for number in chosen}
        for run in concurrent.futures.as_completed(runs):
            done += 1
            mutant = mutants[runs[run]]
            verdict = unit_tests.both(chosen[runs[run]], run.result())
            kept.add(mutant, verdict)
            if verdict.verdict != unit_tests.FOUND:
                lives[mutant["number"]] = verdict
                why = f" ({verdict.why})" if verdict.why else ""
                print(f"{verdict.verdict} ({done} of {len(chosen)}): {mutant['number']} {mutant['place']}\t{mutant['what']}{why}", flush=True)
    return dict(sorted(lives.items()))


def try_by_stages(tests, mutants, chosen, kept, options, near):
    """Tries them against the nearest tests, and those that live against all others."""
    chosen = dict.fromkeys(chosen)
    for names, which in zip(tests.names(near), ("nearest", "other")):
        if not chosen or not names or (which == "other" and options.near):
            continue
        began = time.monotonic()
        tests.tests = tests.learn(names, options.jobs)
        took = time.monotonic() - began
        print(f"{len(tests.tests)} of {len(names)} {which} tests come by a mutant; they were run in {took:.0f} s", flush=True)
        if tests.failed:
            print("left out, as they fail without a mutant: " + ", ".join(tests.failed), flush=True)
        chosen = try_all(tests, mutants, chosen, kept, options.jobs)


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(prog="contrib/dev mutants", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--sample", type=int, help="try so many of them, chosen by lot")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="these mutants, by number")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="leave out what an earlier run has tried")
    again.add_argument("--lives", action="store_true", help="try again what earlier runs did not find")
    parser.add_argument("--filter", type=lambda words: words.split(","), help="run only tests whose name has one of these in it")
    parser.add_argument("--near", action="store_true", help="run no tests but those of the files' own modules")
    parser.add_argument("--cases", type=int, default=16, help="how many cases a property test tries")
    parser.add_argument("--seconds", type=float, default=10, help="processor time of the tests that are run for one mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many mutants are tried at once")
    return parser.parse_args()


def main():
    options = parse()
    paths = [os.path.relpath(os.path.abspath(path), ROOT) for path in options.paths]
    members = {member_of(path) for path in paths}
    if len(members) != 1:
        sys.exit("name paths of one member of the workspace at a time")
    (package, root), files = members.pop(), files_of(paths)
    if not files:
        sys.exit("there is no source file in " + " ".join(paths))
    options.source = os.path.dirname(root)
    began = time.monotonic()
    copy_tree()
    program, mutants, refused = build_mutants(package, root, files)
    print(f"{len(mutants)} mutants in {len(files)} files; the compiler refused {refused}", flush=True)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    kept = results.Results(os.path.join(WORK, "results"))
    chosen = choose(mutants, kept, options)
    tests = unit_tests.UnitTests(*program, options)
    try_by_stages(tests, mutants, chosen, kept, options, modules_of(files, options.source))
    verdicts = collections.Counter(kept.verdict(mutants[number]) for number in chosen)
    print(f"{verdicts[unit_tests.FOUND]} of {len(chosen)} mutants were found by tests, {verdicts[unit_tests.UNDECIDED]} are undecided")
    return 1 if verdicts[unit_tests.FOUND] < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
