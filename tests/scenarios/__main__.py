"""`python -m tests.scenarios`: replay the stories; with `--rewrite`, put down what they tell now."""

import sys
from pathlib import Path

from tests.scenarios.script import replay

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


def main() -> int:
    changed = 0
    for path in STORIES:
        text = path.read_text()
        told = replay(text)
        if told != text:
            changed += 1
            if "--rewrite" in sys.argv:
                path.write_text(told)
        print(f"{path.stem}: {'changed' if told != text else 'as written'}")
    return 1 if changed and "--rewrite" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
