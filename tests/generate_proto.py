"""Generate kayos/wire/v1 from proto/kayos/v1 (`make proto`), or into another directory for comparison."""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "kayos" / "wire" / "v1"
PACKAGE_DOC = '"""Generated from proto/kayos/v1 by `make proto`: do not edit."""\n'


def generate(target: Path) -> None:
    """Write the modules for every schema file; their imports point into kayos.wire.v1."""
    target.mkdir(parents=True, exist_ok=True)
    sources = sorted((ROOT / "proto").rglob("*.proto"))
    includes = [f"-I{ROOT / 'proto'}", f"-I{files('grpc_tools') / '_proto'}"]
    with tempfile.TemporaryDirectory() as scratch:
        outputs = [f"--python_out={scratch}", f"--pyi_out={scratch}"]
        status = protoc.main(["protoc", *includes, *outputs, *map(str, sources)])
        if status:
            raise SystemExit(f"protoc failed with status {status}")
        for made in sorted((Path(scratch) / "kayos" / "v1").iterdir()):
            text = made.read_text().replace("from kayos.v1 import", "from kayos.wire.v1 import")
            (target / made.name).write_text(text)
    (target / "__init__.py").write_text(PACKAGE_DOC)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
