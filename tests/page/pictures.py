"""README's pictures of the page: how they are taken, and whether the page is another one since.

    python3 tests/page/pictures.py        says which files changed since the pictures in docs/page were taken, and ends with 1 then

`run.py --pictures FOLDER` writes beside the pictures the sums of what makes them (`made-of.sha256`, as sha256sum has it).
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from urllib.request import urlopen

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = "docs/page"
SUMS = "made-of.sha256"
PAGE = "src/web/page"
# Beside the page's own files: what it shows, of which cluster, and how it is photographed.
FEEDS = ["src/web/view.rs", "src/sim/demo/demo.toml", "src/sim/demo/story.rs", "tests/page/pictures.py"]
AGAIN = "python3 tests/page/run.py target/debug/pve-autoscaler --pictures docs/page"


def sums(root):
    """The sums of all that makes the pictures, by path."""
    page = [f"{PAGE}/{name}" for name in os.listdir(os.path.join(root, PAGE))]
    found = {}
    for path in sorted(page + FEEDS):
        with open(os.path.join(root, path), "rb") as file:
            found[path] = hashlib.sha256(file.read()).hexdigest()
    return found


def note(folder, root=ROOT):
    """Writes beside pictures that were just taken what they are of."""
    with open(os.path.join(folder, SUMS), "w", encoding="utf-8") as file:
        file.writelines(f"{found}  {path}\n" for path, found in sums(root).items())


def changed(root=ROOT):
    """What came, went or changed since the pictures were taken; all of it where that is not known."""
    now = sums(root)
    try:
        with open(os.path.join(root, FOLDER, SUMS), encoding="utf-8") as file:
            then = dict(reversed(line.split(maxsplit=1)) for line in file.read().splitlines())
    except FileNotFoundError:
        then = {}
    return [path for path in sorted(now.keys() | then.keys()) if now.get(path) != then.get(path)]


def finds_what_changed():
    """The check itself: nothing of pictures that are new, and each kind of change by its name."""
    with tempfile.TemporaryDirectory(prefix="page-test-") as root:
        for path in sums(ROOT):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(root, path))
        os.makedirs(os.path.join(root, FOLDER))
        wanted = sorted(sums(root))
        found = [changed(root)]
        note(os.path.join(root, FOLDER), root)
        found.append(changed(root))
        with open(os.path.join(root, PAGE, "now.js"), "a", encoding="utf-8") as file:
            file.write("// another one\n")
        os.rename(os.path.join(root, PAGE, "dom.js"), os.path.join(root, PAGE, "other.js"))
        found.append(changed(root))
    if found != [wanted, [], [f"{PAGE}/{name}.js" for name in ["dom", "now", "other"]]]:
        raise SystemExit(f"page: the check of README's pictures says {found}")


def same_as_tree(url):
    """A program that was built of other files makes no pictures of these."""
    for name in os.listdir(os.path.join(ROOT, PAGE)):
        with open(os.path.join(ROOT, PAGE, name), "rb") as file:
            wanted = file.read()
        with urlopen(url if name == "index.html" else f"{url}page/{name}", timeout=30) as answer:
            if answer.read() != wanted:
                raise SystemExit(f"page: no pictures: the program has another {name} than {PAGE}; build it, or say --files {PAGE}")


def of_now(browser, pictures):
    """A busy cluster, on a desk and on a phone."""
    browser.wait("machines come", "return document.querySelectorAll('.work .steps [aria-current]').length > 1", seconds=30)
    # The demo's own buttons are not what the README shows.
    browser.run("document.querySelector('.demo').hidden = true; scrollTo(0, 0)")
    browser.shot(f"{pictures}/now-light.png")
    browser.theme("dark")
    browser.size(412, 900, phone=True)
    browser.shot(f"{pictures}/now-phone-dark.png")
    browser.theme("light")
    browser.size(1280, 900)
    browser.run("document.querySelector('.demo').hidden = false")


def of_when(browser, demo, pictures):
    """Some hours of a demo that goes a hundred times as fast."""
    browser.open(f"{demo.url}#/when")
    browser.click("6 hours")
    # While the record is read the demo's clock stands still: it is not asked often.
    for _ in range(40):
        time.sleep(5)
        browser.click("Read again")
        time.sleep(0.5)
        if browser.run("return document.querySelectorAll('.decisions .deed').length > 9"):
            break
    browser.run("document.querySelector('.decisions .good:nth-last-child(n + 4)').click(); scrollTo(0, 0)")
    browser.shows(" on pve", ".chosen")
    browser.shot(f"{pictures}/when-light.png")
    browser.open("about:blank")


if __name__ == "__main__":
    if others := changed():
        print(f"{FOLDER}: the pictures are older than {', '.join(others[:6])}{' and others' if len(others) > 6 else ''}; {AGAIN} takes them anew.")
        sys.exit(1)
