#!/usr/bin/env python3
"""Whether the verdicts of `contrib/dev mutants` are right: on a program that is no test program but prints what one prints."""

import os
import stat
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
import results  # noqa: E402
import trial  # noqa: E402
import unit_tests  # noqa: E402

# Each test comes by the mutants that are named; with one of them on it does what stands beside it.
TESTS = {
    "a::tests::quick": {1: "fail", 3: "spin", 4: "sleep", 6: "sleep", 7: "flaky"},
    "a::tests::slow": {1: "fail", 2: "fail", 4: "fail", 7: "pass"},
    "b::tests::breaks": {5: "abort", 8: "pass"},
    "b::tests::never_right": {0: "fail", 8: "fail"},
}

PROGRAM = """#!{python}
import os, sys, time
TESTS = {tests!r}
names = [name for name in TESTS if name in sys.argv]
if "--list" in sys.argv:
    for name in TESTS if "--ignored" not in sys.argv else ["b::tests::ignored"]:
        print(name + ": test")
    sys.exit(0)
mutant = int(os.environ["MUTANT"])
for name in names:
    print("test " + name + " ... ", end="", flush=True)
    if "MUTANTS_REACHED" in os.environ:
        with open(os.environ["MUTANTS_REACHED"], "w") as file:
            file.write("\\n".join(map(str, TESTS[name])))
    does = TESTS[name].get(mutant, "pass")
    if name.endswith("slow"):
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    if does == "flaky" and not os.path.exists("flaked"):
        open("flaked", "w").close()
        does = "fail"
    if does == "fail":
        print("FAILED", flush=True)
        sys.exit(101)
    if does == "abort":
        os.abort()
    while does == "spin":
        pass
    if does == "sleep":
        time.sleep(1000)
    print("ok", flush=True)
"""


class Verdicts(unittest.TestCase):
    """What comes of each mutant of that program."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        program = os.path.join(cls.folder.name, "tests")
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM.format(python=sys.executable, tests=TESTS))
        os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
        options = types.SimpleNamespace(filter=None, cases=1, seconds=60, source="src")
        cls.tests = unit_tests.UnitTests(program, cls.folder.name, options)
        for name, value in (("CPU_SECONDS", 0), ("CPU_TIMES", 10), ("SLEEP_SECONDS", 1), ("SLEEP_TIMES", 0)):
            before = getattr(trial, name)
            cls.addClassCleanup(setattr, trial, name, before)
            setattr(trial, name, value)
        near, other = cls.tests.names(["a::"])
        assert near == ["a::tests::quick", "a::tests::slow"], near
        cls.tests.tests = cls.tests.learn(near + other, 2)

    def setUp(self):
        self.tests.finders.clear()

    def test_a_test_that_fails_without_a_mutant_is_left_out(self):
        self.assertEqual(self.tests.failed, ["b::tests::never_right"])
        self.assertEqual(self.tests.judge(8, "src/b.rs").verdict, unit_tests.LIVES)

    def test_the_cheapest_test_that_comes_by_it_finds_a_mutant(self):
        self.assertEqual(self.tests.judge(1, "src/a.rs").by, "a::tests::quick")
        self.assertEqual(self.tests.judge(2, "src/a.rs").by, "a::tests::slow")

    def test_what_takes_ever_more_processor_time_is_found(self):
        self.assertEqual(self.tests.judge(3, "src/a.rs").verdict, unit_tests.FOUND)

    def test_what_waits_for_ever_is_undecided_unless_another_test_fails(self):
        self.assertEqual(self.tests.judge(6, "src/a.rs").verdict, unit_tests.UNDECIDED)
        self.assertEqual(self.tests.judge(4, "src/a.rs").by, "a::tests::slow")

    def test_what_ends_the_program_is_found(self):
        self.assertEqual(self.tests.judge(5, "src/b.rs").verdict, unit_tests.FOUND)

    def test_a_failure_that_does_not_come_again_is_none(self):
        self.assertEqual(self.tests.judge(7, "src/a.rs").verdict, unit_tests.LIVES)

    def test_what_others_say_later_takes_no_doubt_away(self):
        found, lives, unreached, undecided = (
            unit_tests.Verdict(verdict, "", "", 0.0)
            for verdict in (unit_tests.FOUND, unit_tests.LIVES, unit_tests.UNREACHED, unit_tests.UNDECIDED)
        )
        for before, after, whole in (
            (None, unreached, unreached),
            (unreached, lives, lives),
            (lives, unreached, lives),
            (undecided, lives, undecided),
            (lives, undecided, undecided),
            (undecided, found, found),
        ):
            self.assertEqual(unit_tests.both(before, after), whole)

    def test_what_was_learnt_of_a_program_is_kept_with_it(self):
        again = unit_tests.UnitTests(self.tests.program, self.folder.name, self.tests.options)
        before = os.stat(again.program)
        os.chmod(again.program, 0o644)
        names = [test.name for test in self.tests.tests]
        self.assertEqual(again.learn(names, 1), self.tests.tests)
        os.chmod(again.program, 0o755)
        self.addCleanup(os.utime, again.program, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.utime(again.program, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        self.assertEqual([test.name for test in again.learn(names[:1], 1)], names[:1])
        self.assertNotEqual(again.version(), [before.st_size, before.st_mtime_ns, 1])

    def test_what_no_test_comes_by_is_not_run(self):
        self.assertEqual(self.tests.judge(9, "src/a.rs").verdict, unit_tests.UNREACHED)

    def test_slow_tests_are_left_out_and_counted(self):
        self.tests.options.seconds = 0.1
        self.addCleanup(setattr, self.tests.options, "seconds", 60)
        verdict = self.tests.judge(7, "src/a.rs")
        self.assertEqual((verdict.verdict, verdict.why), (unit_tests.LIVES, "1 slow tests were not run"))

    def test_results_are_those_of_the_file_as_it_is(self):
        path = os.path.join(self.folder.name, "results")
        mutant = {"number": 5, "file": "src/b.rs", "digest": "1", "index": 1}
        results.Results(path).add(mutant, self.tests.judge(5, "src/b.rs"))
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"number": 6, "fi')
        kept = results.Results(path)
        self.assertEqual(kept.verdict(dict(mutant, number=7)), unit_tests.FOUND)
        self.assertIsNone(kept.verdict(dict(mutant, digest="2")))
        # What comes after a line that was cut off is read again.
        kept.add(dict(mutant, index=2), self.tests.judge(9, "src/b.rs"))
        self.assertEqual(results.Results(path).verdict(dict(mutant, index=2)), unit_tests.UNREACHED)


if __name__ == "__main__":
    unittest.main()
