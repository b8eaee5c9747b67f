"""The generated code is what the schema says: `make proto` was not forgotten."""

from pathlib import Path

import pytest

from tests.generate_proto import GENERATED, generate


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("generated")
    generate(target)
    return target


def test_no_generated_file_is_missing_or_left_over(fresh: Path) -> None:
    assert names_in(GENERATED) == names_in(fresh)
    assert len(names_in(fresh)) >= 7


@pytest.mark.parametrize("name", sorted(path.name for path in GENERATED.glob("*.py*")))
def test_generated_code_is_not_stale(fresh: Path, name: str) -> None:
    assert (GENERATED / name).read_text() == (fresh / name).read_text(), "run 'make proto'"


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_file()}
