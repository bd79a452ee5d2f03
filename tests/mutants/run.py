#!/usr/bin/env python3
"""Which mutants of some source files no unit test of their crate finds.

    contrib/dev mutants PATH... [--sample N] [--seed N] [--cases N] [--only NUMBER,...] [--filter WORD]

PATH: files and folders of one member of the workspace, such as src/brain/scale_down. All mutants of them are built
into one program (tool.rs); each, or N of them by lot, is then switched on while the tests run. A mutant
is found when a test fails or hangs. What no test finds is printed, and the exit code says 1.
Everything happens on a copy of the tree below target/mutants.
"""

import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, "target", "mutants")
TREE = os.path.join(WORK, "tree")
LIST = re.compile(r"mutant_switch::on\((\d+)\)")
# How often what the compiler refuses is left out before it is given up.
ROUNDS = 12
# A test that hangs is ended after this many times what all tests take without a mutant.
PATIENCE = 3


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
    """Cargo on the copy, with lints silent: mutants are no beautiful code."""
    environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(WORK, "build"), RUSTFLAGS="--cap-lints=allow")
    return subprocess.run(["cargo", *arguments], cwd=TREE, env=environment, text=True, check=False, **more)


def write_mutants(tool, root, files, without):
    """Writes them into the copy; returns by number what each does."""
    for name in [root, *files]:
        shutil.copy2(os.path.join(ROOT, name), os.path.join(TREE, name))
    refused = os.path.join(WORK, "without")
    with open(refused, "w", encoding="utf-8") as file:
        file.write("\n".join(map(str, sorted(without))))
    shown = subprocess.run([tool, root, "--without", refused, *files], cwd=TREE, check=True, capture_output=True, text=True)
    lines = (line.split("\t", 1) for line in shown.stdout.splitlines())
    return {int(number): what for number, what in lines}


def refused_by_compiler(package):
    """The numbers of mutants in what the compiler says no to; None when it says yes."""
    checked = cargo("check", "--quiet", "-p", package, "--lib", "--message-format=json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if checked.returncode == 0:
        return None
    numbers = set()
    for line in checked.stdout.splitlines():
        message = json.loads(line).get("message") or {}
        if message.get("level") != "error":
            continue
        for span in message.get("spans", []):
            for text in span["text"]:
                part = text["text"]
                inside = part[text["highlight_start"] - 1 : text["highlight_end"] - 1]
                numbers |= {int(number) for number in LIST.findall(inside) or LIST.findall(part)}
    if not numbers:
        sys.exit("what the compiler refuses names no mutant:\n" + checked.stdout)
    return numbers


def build(package):
    """The program of the crate's unit tests."""
    built = cargo("test", "--quiet", "-p", package, "--lib", "--no-run", "--message-format=json", stdout=subprocess.PIPE)
    if built.returncode:
        sys.exit("the tests cannot be built")
    for line in built.stdout.splitlines():
        of = json.loads(line)
        if of.get("executable") and of["target"]["name"] == package.replace("-", "_"):
            return of["executable"], os.path.dirname(of["manifest_path"])
    sys.exit("cargo names no program of the tests")


class Tests:
    """The program of the tests, run with one mutant or none."""

    def __init__(self, program, folder, options):
        self.argv, self.folder = [program, "--test-threads=1", *([options.filter] if options.filter else [])], folder
        self.cases, self.filtered = options.cases, bool(options.filter)
        self.limit = None

    def environment(self, mutant):
        return dict(os.environ, MUTANT=str(mutant), PROPTEST_CASES=str(self.cases), RUST_BACKTRACE="0")

    def begin(self):
        """All tests without a mutant: those that fail then (too few cases, say) are left out; returns their names."""
        began = time.monotonic()
        ran = subprocess.run(
            self.argv, cwd=self.folder, env=self.environment(0), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
        self.limit = PATIENCE * (time.monotonic() - began) + 10
        failed = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$", ran.stdout, re.MULTILINE)
        if ran.returncode and not failed:
            sys.exit("the tests end badly without any mutant")
        for name in failed:
            self.argv += ["--skip", name]
        if failed and not self.filtered:
            # Names as a whole, not as parts of others.
            self.argv.append("--exact")
        return sorted(set(failed))

    def run(self, mutant):
        """Whether a test fails or hangs."""
        with subprocess.Popen(
            self.argv, cwd=self.folder, env=self.environment(mutant), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            timer = concurrent.futures.ThreadPoolExecutor(1)
            waits = timer.submit(self._fails, process)
            try:
                return waits.result(self.limit)
            except concurrent.futures.TimeoutError:
                return True
            finally:
                process.kill()
                timer.shutdown()

    @staticmethod
    def _fails(process):
        for line in process.stdout:
            if line.rstrip().endswith("... FAILED"):
                return True
        return process.wait() != 0


def main():
    parser = argparse.ArgumentParser(prog="contrib/dev mutants", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--sample", type=int, help="try so many of them, chosen by lot")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=16, help="how many cases a property test tries")
    parser.add_argument("--only", help="these mutants, by number")
    parser.add_argument("--filter", help="run only tests whose name has this in it")
    options = parser.parse_args()
    paths = [os.path.relpath(os.path.abspath(path), ROOT) for path in options.paths]
    members = {member_of(path) for path in paths}
    if len(members) != 1:
        sys.exit("name paths of one member of the workspace at a time")
    (package, root), files = members.pop(), files_of(paths)
    if not files:
        sys.exit("there is no source file in " + " ".join(paths))
    copy_tree()
    if cargo("build", "--quiet", "-p", "pve-autoscaler-mutants").returncode:
        sys.exit("the tool cannot be built")
    tool = os.path.join(WORK, "build", "debug", "mutants")
    without, began = set(), time.monotonic()
    for _ in range(ROUNDS):
        mutants = write_mutants(tool, root, files, without)
        refused = refused_by_compiler(package)
        if refused is None:
            break
        without |= refused
    else:
        sys.exit("the compiler refuses ever more of them")
    print(f"{len(mutants)} mutants in {len(files)} files; the compiler refused {len(without)}", flush=True)
    tests = Tests(*build(package), options)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    began, failed = time.monotonic(), tests.begin()
    print(f"without a mutant the tests take {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print("left out, as they fail without a mutant: " + ", ".join(failed), flush=True)
    chosen = sorted(mutants)
    if options.only:
        chosen = [int(number) for number in options.only.split(",")]
    elif options.sample and options.sample < len(chosen):
        chosen = sorted(random.Random(options.seed).sample(chosen, options.sample))
    lives, done = [], 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        runs = {workers.submit(tests.run, mutant): mutant for mutant in chosen}
        for run in concurrent.futures.as_completed(runs):
            done += 1
            if not run.result():
                lives.append(runs[run])
                print(f"not found ({done} of {len(chosen)}): {runs[run]} {mutants[runs[run]]}", flush=True)
    print(f"{len(chosen) - len(lives)} of {len(chosen)} mutants were found by tests")
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
