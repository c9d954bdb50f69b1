"""Adds to pyproject.toml the optional C extensions (docs/install.md), editable installs that are found from
anywhere, and the package's description.
"""

import base64
import hashlib
import os
import re
import zipfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

# optional: without a compiler rmqio installs all the same, and runs in Python.
_FAST = Extension(
    "rmqio.wire._fast",
    [f"rmqio/wire/_fast{name}.c" for name in ("", "_encoding", "_values", "_copies", "_header", "_places")],
    depends=["rmqio/wire/_fast.h"],
    optional=True,
)
_BULK = Extension(
    "rmqio.serde.avro._bulk",
    [f"rmqio/serde/avro/_bulk{name}.c" for name in ("", "_values", "_columns", "_keys")],
    depends=["rmqio/serde/avro/_bulk.h"],
    optional=True,
)
_LOOK = Extension(
    "rmqio.enrich.table._look",
    [f"rmqio/enrich/table/_look{name}.c" for name in ("", "_table", "_columns")],
    depends=["rmqio/enrich/table/_look.h", "rmqio/enrich/table/_look_find.h"],
    optional=True,
)
_NUMBERS = Extension("rmqio.serde._numbers", ["rmqio/serde/_numbers.c"], optional=True)
_FORMAT = "pyspark_rocketmq/__init__.py"


class EditableWheel(editable_wheel):
    """Makes the package be found where setuptools' import finder alone does not find it.

    - Spark looks for formats with `pkgutil.iter_modules()`, which does not see modules that the finder maps to this
      folder. So the module of the format is in the environment as a file.
    - A program that is beside a clone called `rmqio` has that folder on its path. So the finder comes first.
    """

    def run(self) -> None:
        super().run()
        for wheel in Path(self.dist_dir).glob("*.whl"):
            _mend(wheel, _FORMAT, Path(__file__).with_name("pyspark_rocketmq").joinpath("__init__.py").read_bytes())


def _mend(wheel: Path, name: str, data: bytes) -> None:
    """Adds a file to an editable wheel, and puts its finder first."""
    old = wheel.rename(wheel.with_suffix(".old"))
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as target:
        files = {entry: source.read(entry) for entry in source.namelist()}
        (record,) = (each for each in files if each.endswith(".dist-info/RECORD"))
        for each in files:
            if each.startswith("__editable__") and each.endswith("_finder.py"):
                files[each] = files[each].replace(b"sys.meta_path.append(", b"sys.meta_path.insert(0, ")
        files[name] = data
        del files[record]
        lines = [*(f"{each},{_digest(content)}" for each, content in files.items()), f"{record},,"]
        files[record] = "".join(f"{line}\n" for line in lines).encode()
        for each, content in files.items():
            target.writestr(each, content)
    old.unlink()


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(content)}"


def _description() -> str:
    """README without its picture and the links into this repository: elsewhere, they lead nowhere."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n+", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


# The wheel of a release for all platforms has none.
_WITHOUT = os.environ.get("RMQIO_NO_EXTENSION") == "1"
setup(
    # pyspark_rocketmq: Spark looks for data sources in modules with such names.
    packages=[
        *find_packages(include=["rmqio", "rmqio.*", "pyspark_rocketmq"]),
        *(f"rmqio.{each}" for each in find_packages(include=["pipelines", "pipelines.*", "schemas"])),
    ],
    package_dir={"rmqio.pipelines": "pipelines", "rmqio.schemas": "schemas"},
    ext_modules=[] if _WITHOUT else [_FAST, _BULK, _LOOK, _NUMBERS],
    cmdclass={"editable_wheel": EditableWheel},
    long_description=_description(),
    long_description_content_type="text/markdown",
)
