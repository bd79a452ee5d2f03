"""What was learned about each mutant: a file to which a line is added as soon as one is judged, so that a run that was interrupted goes on."""

import hashlib
import json
import os


class Results:
    """The file, and the last line of it about each mutant."""

    def __init__(self, path):
        self.path, self.last = path, {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                lines = file.read().split("\n")
            # What follows the last end of a line was cut off.
            if lines.pop():
                with open(path, "w", encoding="utf-8") as file:
                    file.writelines(line + "\n" for line in lines)
            for of in map(json.loads, lines):
                self.last[self._key(of)] = of

    @staticmethod
    def _key(of):
        """A mutant is the same as long as its file is: its number counts those of all files that are named beside it."""
        return of["file"], of["digest"], of["index"]

    def verdict(self, mutant):
        """The last verdict about a mutant, if there is one."""
        return self.last.get(self._key(mutant), {}).get("verdict")

    def add(self, mutant, verdict):
        """Writes a verdict down."""
        line = dict(mutant, **vars(verdict))
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.last[self._key(mutant)] = line


def digest(path):
    """Says whether a file is the same."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]
