"""What pyproject.toml cannot say: the optional C extension (docs/accelerator.md), and one file of editable installs."""

import base64
import hashlib
import os
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.editable_wheel import editable_wheel

# optional: without a compiler rmqio installs all the same, and runs in Python.
_FAST = Extension(
    "rmqio.wire._fast",
    ["rmqio/wire/_fast.c", "rmqio/wire/_fast_values.c", "rmqio/wire/_fast_header.c"],
    depends=["rmqio/wire/_fast.h"],
    optional=True,
)
_FORMAT = "pyspark_rocketmq/__init__.py"


class EditableWheel(editable_wheel):
    """Puts the module of Spark's format into the environment as a file.

    Spark looks for formats with `pkgutil.iter_modules()`, which does not see modules that an import finder maps to this
    folder.
    """

    def run(self) -> None:
        super().run()
        for wheel in Path(self.dist_dir).glob("*.whl"):
            _add(wheel, _FORMAT, Path(__file__).with_name("pyspark_rocketmq").joinpath("__init__.py").read_bytes())


def _add(wheel: Path, name: str, data: bytes) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    old = wheel.rename(wheel.with_suffix(".old"))
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content += f"{name},sha256={digest},{len(data)}\n".encode()
            target.writestr(entry, content)
        target.writestr(name, data)
    old.unlink()


# The wheel of a release for all platforms has none.
_WITHOUT = os.environ.get("RMQIO_NO_EXTENSION") == "1"
setup(ext_modules=[] if _WITHOUT else [_FAST], cmdclass={"editable_wheel": EditableWheel})
