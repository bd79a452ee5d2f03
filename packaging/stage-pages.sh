#!/bin/bash
# stage-pages.sh DIR: lays README and docs out in DIR as the package has them, and fails where a link leads nowhere.
# build-deb.sh calls it; a test does too, so that a dead link is found an hour before the package is built.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
doc="${1:?stage-pages.sh DIR}"

install -D -m 0644 -t "$doc/docs" docs/*.md
install -D -m 0644 -t "$doc/docs/decisions" docs/decisions/*.md
install -D -m 0644 -t "$doc/docs/page" docs/page/*.png
install -m 0644 README.md CONTRIBUTING.md "$doc/"
# Not beside the others, where debhelper would take it for the package's own.
install -m 0644 CHANGELOG.md "$doc/docs/"

# Sources are not in the package: of a link to them the words stay.
sed -i -E -e 's#\[([^]]*)\]\((\.\./)*(src|tests)/[^)]*\)#\1#g' "$doc"/*.md "$doc"/docs/*.md "$doc"/docs/decisions/*.md
sed -i -E -e 's#\]\((\.\./)?contrib/kubernetes/#](/usr/share/pve-autoscaler/kubernetes/#g' "$doc"/*.md "$doc"/docs/*.md
sed -i -e 's|](docs/|](|g' "$doc/docs/CHANGELOG.md"
sed -i -e 's|](CHANGELOG.md)|](docs/CHANGELOG.md)|' -e 's|](LICENSE)|](/usr/share/common-licenses/Apache-2.0)|' \
    "$doc/README.md" "$doc/CONTRIBUTING.md"

missing=0
while read -r path; do
    [ -e "$doc/$path" ] || { echo "stage-pages: a page links to $path, which the package does not have" >&2 && missing=1; }
done < <(
    cd "$doc"
    for page in *.md docs/*.md docs/decisions/*.md; do
        { grep -oE '\]\([^):# ]+[)#]' "$page" || true; } | sed -e 's/[)#]$//' -e '/^](\//d' -e "s|^](|$(dirname "$page")/|"
    done
)
exit "$missing"
