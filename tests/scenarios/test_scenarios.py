"""Every golden story tells what it told before, byte for byte; `python -m tests.scenarios --rewrite` writes it anew."""

from pathlib import Path

import pytest

from tests.scenarios.script import replay

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_is_told_as_before(path: Path) -> None:
    text = path.read_text()
    assert replay(text) == text
