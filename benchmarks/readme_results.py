"""Copy the results table of the README from docs/results.md, between its markers, so that no figure is typed.

    python benchmarks/readme_results.py

In the README, `<!-- from docs/results.md: TITLE -->` ... `<!-- end -->` holds the table of the section TITLE; without
any such place one is made for the table of the control families. A test checks that both pages agree.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = "Control families and the refinement frontier"
SECTION = f"""## Results

<!-- from docs/results.md: {FIRST} -->
<!-- end -->

What these figures are, what they compare with and the other tables: [docs/results.md](docs/results.md).

"""
BEFORE = "## How it works\n"
MARKED = re.compile(r"(<!-- from docs/results.md: (.+?) -->\n)(.*?)(<!-- end -->)", flags=re.S)


def table_of(page: str, title: str) -> str:
    """The first table of a section."""
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = re.search(r"(?:^\|.*\|\n)+", section, flags=re.M)
    if found is None:
        sys.exit(f"docs/results.md has no table under '## {title}'")
    return found.group()


def main() -> None:
    """Rewrite every marked table."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    if not MARKED.search(old):
        old = old.replace(BEFORE, SECTION + BEFORE)
    new = MARKED.sub(lambda match: match[1] + table_of(page, match[2]) + match[4], old)
    readme.write_text(new, encoding="utf-8")
    print("README.md holds the results of docs/results.md")


if __name__ == "__main__":
    main()
