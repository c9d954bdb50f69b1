"""The C extension built so that the fuzzer sees its branches, in place of the one that is installed."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_NAME: Final = "rmqio.wire._fast"


def build(folder: str) -> Path:
    """Compiles it with gcc. Raises `subprocess.CalledProcessError`, or `OSError` where there is no gcc."""
    library = Path(folder, "_fast" + sysconfig.get_config_var("EXT_SUFFIX"))
    compile_it = ["gcc", "-O1", "-g", "-fPIC", "-I", sysconfig.get_path("include")]
    objects = []
    for source in sorted((_ROOT / "rmqio/wire").glob("_fast*.c")):
        objects.append(str(Path(folder, f"{source.stem}.o")))
        edges = ["-fsanitize-coverage=trace-pc", "-c", str(source), "-o", objects[-1]]
        subprocess.run([*compile_it, *edges], check=True, capture_output=True)
    link = ["-shared", str(Path(__file__).with_name("covered.c")), *objects, "-o", str(library)]
    subprocess.run([*compile_it, *link], check=True, capture_output=True)
    return library


def load(library: Path) -> None:
    """Makes it `rmqio.wire._fast`, and its counters libFuzzer's. Before anything imports the accelerator."""
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(library))
    spec = importlib.util.spec_from_file_location(_NAME, library, loader=loader)
    if spec is None:
        raise ImportError(_NAME)

    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[_NAME] = module
    from atheris import core_with_libfuzzer  # else imported only when it begins

    core: Any = ctypes.CDLL(core_with_libfuzzer.__file__, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    ctypes.CDLL(str(library)).cover(core.__sanitizer_cov_8bit_counters_init, core.__sanitizer_cov_pcs_init)
