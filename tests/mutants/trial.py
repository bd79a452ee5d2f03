"""One run of some unit tests, with one mutant or none, and what it says on a machine that others keep busy.

A test that fails says so. One that hangs is known by the processor time it takes, which does not depend on what else the
machine does. Time on the clock does: a run that it ends, or that sleeps for long, says nothing.
"""

import dataclasses
import os
import re
import resource
import select
import signal
import subprocess
import time

# A run is ended after so much processor time: seconds, and how many times what its tests take without a mutant.
CPU_SECONDS, CPU_TIMES = 10, 10
# The same on the clock.
CLOCK_SECONDS, CLOCK_TIMES = 300, 30
# A run in which nothing wants a processor for so long waits for what never comes.
SLEEP_SECONDS, SLEEP_TIMES = 30, 3
# A mutant that takes ever more memory gets no more than this.
MEMORY = 8 << 30

BEGINS = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ", re.MULTILINE)
FAILED = re.compile(r"(?:\.\.\. |^)FAILED$", re.MULTILINE)

PASSED, FAILS, HANGS, UNDECIDED = "passed", "fails", "hangs", "undecided"


@dataclasses.dataclass
class Outcome:
    """What came of a run."""

    verdict: str
    # The test that ran when it ended early.
    at: str
    why: str
    cpu: float
    clock: float


def is_asleep(process):
    """Whether no thread of a process runs, wants to, or waits for a disk."""
    folder = f"/proc/{process}/task"
    try:
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] in "RD":
                    return False
    except OSError:
        return False
    return True


def cpu_of(process):
    """The processor time that a process and the ones it has waited for have taken, in ticks."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:15]))
    except OSError:
        return -1


def run(argv, folder, environment, cpu=0.0, clock=0.0):
    """Runs the program of the tests, one test after the other; `cpu` and `clock` are what its tests take without a mutant."""
    limits = (CPU_SECONDS + CPU_TIMES * cpu, CLOCK_SECONDS + CLOCK_TIMES * clock, SLEEP_SECONDS + SLEEP_TIMES * clock)
    # pylint: disable-next=consider-using-with
    process = subprocess.Popen(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    began = time.monotonic()
    try:
        most = int(limits[0]) + 1
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (most, most + 5))
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
    except ProcessLookupError:
        pass
    text, early = _read(process, began, limits)
    if early:
        # It may have ended meanwhile; nobody has waited for it yet, so that its number is still its own.
        os.kill(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    verdict, why = early or _judge(process.returncode)
    begun = BEGINS.findall(text)
    at = begun[-1] if begun and verdict != PASSED else ""
    return Outcome(verdict, at, why, usage.ru_utime + usage.ru_stime, time.monotonic() - began)


def _judge(code):
    """What the end of a program says that ended by itself or was ended by a limit."""
    if code == 0:
        return PASSED, ""
    if code == -signal.SIGXCPU:
        return HANGS, "it takes ever more processor time"
    if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return UNDECIDED, "it was ended from outside"
    return FAILS, f"the tests end with {code}"


def _read(process, began, limits):
    """What the tests print, up to the first that fails; and the verdict where the run is to be ended."""
    text, used, slept = "", -1, began
    while True:
        ready, _, _ = select.select([process.stdout], [], [], 1)
        now = time.monotonic()
        if ready:
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return text, None
            text += part.decode(errors="replace")
            if FAILED.search(text):
                return text, (FAILS, "")
            continue
        if now - began > limits[1]:
            return text, (UNDECIDED, "it took too long on the clock")
        takes = cpu_of(process.pid)
        if takes != used or not is_asleep(process.pid):
            used, slept = takes, now
        elif now - slept > limits[2]:
            return text, (UNDECIDED, "it waits for what does not come")
