"""The unit tests of a crate with all mutants in it: which come by which mutant, what each costs, and whether one finds it."""

import concurrent.futures
import dataclasses
import json
import os
import tempfile
import threading

import trial

# The tests that come by a mutant are run in several goes, the nearest and cheapest first: at the most so much processor time each.
GOES = (0.05, 0.3, 2.0, 8.0, 1e9)
# So many of the tests that last found something in a file are tried first.
REMEMBERED = 3
# A mutant is given up when so many runs of it said nothing.
SILENT = 2

FOUND, LIVES, UNREACHED, UNDECIDED = "found", "lives", "unreached", "undecided"


@dataclasses.dataclass
class Test:
    """A unit test as it is without a mutant."""

    name: str
    cpu: float
    clock: float
    reaches: frozenset


@dataclasses.dataclass
class Verdict:
    """What was learned about one mutant."""

    verdict: str
    by: str
    why: str
    cpu: float


def both(before, after):
    """What some tests and then others say of a mutant that the first ones did not find."""
    if before is None or after.verdict == FOUND:
        return after
    return before if UNDECIDED == before.verdict or UNREACHED == after.verdict else after


def together(first, second):
    """How many modules two paths have in common."""
    count = 0
    for one, other in zip(first, second):
        if one != other:
            break
        count += 1
    return count


class UnitTests:
    """The program of the tests."""

    def __init__(self, program, folder, options):
        self.program, self.folder, self.options = program, folder, options
        # Of all that there are: those that mutants are tried against, and those that fail without one.
        self.listed, self.tests, self.failed = None, [], []
        # By source file: the tests that found something in it, the last one last.
        self.finders, self.lock = {}, threading.Lock()

    def _environment(self, mutant, reached=None):
        environment = dict(
            os.environ,
            MUTANT=str(mutant),
            PROPTEST_CASES=str(self.options.cases),
            PROPTEST_RNG_SEED="1",
            PROPTEST_MAX_SHRINK_ITERS="0",
            PROPTEST_DISABLE_FAILURE_PERSISTENCE="true",
            INSTA_UPDATE="no",
            RUST_BACKTRACE="0",
        )
        if reached:
            environment["MUTANTS_REACHED"] = reached
        return environment

    def _run(self, names, mutant, cpu=0.0, clock=0.0, reached=None):
        argv = [self.program, "--test-threads=1", "--exact", *names]
        return trial.run(argv, self.folder, self._environment(mutant, reached), cpu, clock)

    def _names(self):
        listed = []
        for more in ([], ["--ignored"]):
            argv = [self.program, "--list", "--format=terse", *more]
            ran = trial.subprocess.run(argv, cwd=self.folder, check=True, stdout=trial.subprocess.PIPE, text=True)
            listed.append([line.removesuffix(": test") for line in ran.stdout.splitlines() if line.endswith(": test")])
        ignored, words = set(listed[1]), self.options.filter
        return [name for name in listed[0] if name not in ignored and (not words or any(word in name for word in words))]

    def _learn(self, name):
        """Runs one test without a mutant; a second time if it fails, as it may be the machine."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as reached:
            for _ in range(2):
                ran = self._run([name], 0, cpu=60, reached=reached.name)
                if ran.verdict == trial.PASSED:
                    numbers = frozenset(map(int, reached.read().split()))
                    return Test(name, ran.cpu, ran.clock, numbers)
        return None

    def names(self, near):
        """The tests of these modules, or all others; of those that are asked for."""
        if self.listed is None:
            self.listed = self._names()
        of_these = [name.startswith(tuple(near)) for name in self.listed]
        return [
            [name for name, is_near in zip(self.listed, of_these) if is_near],
            [name for name, is_near in zip(self.listed, of_these) if not is_near],
        ]

    def learn(self, names, jobs):
        """Runs each test for itself; those that fail without a mutant (too few cases, say) are left out. What is learnt of a program
        is kept beside it. Returns the tests that come by a mutant."""
        known, kept = self._known(), []
        with open(self.program + ".learnt", "a", encoding="utf-8") as file, concurrent.futures.ThreadPoolExecutor(jobs) as workers:
            asked = [name for name in names if name not in known]
            for name, test in zip(asked, workers.map(self._learn, asked)):
                known[name] = test
                line = dataclasses.asdict(test) if test else {"name": name}
                line.update(reaches=sorted(test.reaches) if test else [], of=self.version())
                file.write(json.dumps(line) + "\n")
                file.flush()
        for name in names:
            if known[name] is None:
                self.failed.append(name)
            elif known[name].reaches:
                kept.append(known[name])
        return kept

    def version(self):
        """Another program has another one."""
        found = os.stat(self.program)
        return [found.st_size, found.st_mtime_ns, self.options.cases]

    def _known(self):
        """What was learnt of this program before."""
        known = {}
        if os.path.exists(self.program + ".learnt"):
            with open(self.program + ".learnt", encoding="utf-8") as file:
                for line in file:
                    of = json.loads(line) if line.endswith("\n") else {}
                    if of.get("of") == self.version():
                        name, found = of["name"], "cpu" in of
                        known[name] = Test(name, of["cpu"], of["clock"], frozenset(of["reaches"])) if found else None
        return known

    def _goes(self, number, file):
        """The tests that come by a mutant in the order in which they cost the least, cut into goes; and how many are left out."""
        place = file.removesuffix("/mod.rs").removesuffix(".rs").removeprefix(self.options.source).strip("/").split("/")
        near = [test for test in self.tests if number in test.reaches]
        near.sort(key=lambda test: (-together(place, test.name.split("::")[:-1]), test.cpu))
        with self.lock:
            finders = self.finders.get(file, [])[-REMEMBERED:]
        near.sort(key=lambda test: test.name not in finders)
        goes, all_cpu, left_out = [[]], 0.0, 0
        for test in near:
            if all_cpu + test.cpu > self.options.seconds and all_cpu:
                left_out += 1
                continue
            all_cpu += test.cpu
            most = GOES[min(len(goes), len(GOES)) - 1]
            if goes[-1] and sum(of.cpu for of in goes[-1]) + test.cpu > most:
                goes.append([])
            goes[-1].append(test)
        return [go for go in goes if go], left_out

    def judge(self, number, file):
        """Whether a test fails, twice, or takes ever more processor time with a mutant on."""
        goes, left_out = self._goes(number, file)
        if not goes:
            return Verdict(UNREACHED, "", "", 0.0)
        cpu, silent = 0.0, []
        for go in goes:
            while go:
                ran = self._run([test.name for test in go], number, sum(of.cpu for of in go), sum(of.clock for of in go))
                cpu += ran.cpu
                if ran.verdict == trial.PASSED:
                    break
                test = next((of for of in go if of.name == ran.at), None)
                if ran.verdict == trial.FAILS and test:
                    again = self._run([test.name], number, test.cpu, test.clock)
                    cpu += again.cpu
                    if again.verdict not in (trial.FAILS, trial.HANGS):
                        # It was the machine, or luck.
                        go = [of for of in go if of is not test]
                        continue
                if ran.verdict in (trial.FAILS, trial.HANGS):
                    with self.lock:
                        known = self.finders.setdefault(file, [])
                        known[:] = [of for of in known if of != ran.at] + [ran.at]
                    return Verdict(FOUND, ran.at, ran.why, cpu)
                silent.append(f"{ran.at}: {ran.why}")
                go = [of for of in go if of is not test] if test else []
                if len(silent) == SILENT:
                    return Verdict(UNDECIDED, "", "; ".join(silent), cpu)
        if silent:
            return Verdict(UNDECIDED, "", "; ".join(silent), cpu)
        return Verdict(LIVES, "", f"{left_out} slow tests were not run" if left_out else "", cpu)
