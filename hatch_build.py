"""Build the codec core, core/*.c, to the library that adaquantfl loads: `python hatch_build.py`, or hatchling's hook.

The compiler is $CC, else cc, gcc or clang, else zig, which pip installs for the build where there is no other.
$AQ_TARGET (such as aarch64-linux-musl, in zig's words) is for the wheel of another platform, which zig compiles.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # the script needs no package
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
# system: the library's name, flags to compile and to link, the wheel's tag, machines that the tag calls otherwise
SYSTEMS: dict[str, tuple[str, list[str], list[str], str, dict[str, str]]] = {
    "linux-gnu.2.17": ("libaq.so", ["-fPIC"], ["-s"], "manylinux_2_17", {}),
    "linux-musl": ("libaq.so", ["-fPIC"], ["-s"], "musllinux_1_2", {}),
    "macos.11.0": ("libaq.dylib", ["-mmacosx-version-min=11.0"], [], "macosx_11_0", {"aarch64": "arm64"}),
    "windows-gnu": ("libaq.dll", [], ["-s"], "win", {"x86_64": "amd64", "aarch64": "arm64"}),
}
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"]
FLAGS += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]  # the same numbers on every machine
AVX2 = ["-mavx2", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"]
MACHINE, _, SYSTEM = os.environ.get("AQ_TARGET", "").partition("-")
if not SYSTEM:
    MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    LINUX = "linux-gnu.2.17" if platform.libc_ver()[0] == "glibc" else "linux-musl"
    SYSTEM = {"Darwin": "macos.11.0", "Windows": "windows-gnu"}.get(platform.system(), LINUX)
NAME, COMPILE, LINK, TAG, MACHINES = SYSTEMS[SYSTEM]


def compiler() -> list[str]:
    found = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{MACHINE}-{SYSTEM}"]
    return shlex.split(found) if found and "AQ_TARGET" not in os.environ else zig


def run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError):
        advice = "Set CC to a C compiler: gcc, clang, or 'python -m ziglang cc' after `pip install ziglang`."
        raise SystemExit(f"The core was not built: {command[0]} failed, see above. {advice}") from None


def objects(folder: Path, command: list[str], machine: str = MACHINE) -> list[str]:
    """Compile what is older than its sources, two at a time; return all object files."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = max(path.stat().st_mtime for path in [*ROOT.glob("core/*.h"), Path(__file__)])
    units, stale = [], []
    for source in sorted(ROOT.glob("core/*.c")):
        several = machine == "x86_64" and source.stem.endswith("_vectors")
        for number, vectors in enumerate([[], AVX2, AVX2 + AVX512] if several else [[]]):
            unit = folder / f"{source.stem}-{number}.o"
            units.append(str(unit))
            if not unit.exists() or unit.stat().st_mtime < max(shared, source.stat().st_mtime):
                stale.append([*command, *vectors, f"-DAQ_VECTORS={number}", "-c", str(source), "-o", str(unit)])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, stale))
    return units


def library_objects() -> tuple[Path, list[str]]:
    by = "zig" if "ziglang" in compiler() else Path(compiler()[0]).name
    folder = ROOT / "build" / f"{by}-{MACHINE}-{SYSTEM}"
    return folder, objects(folder, [*compiler(), *FLAGS, *COMPILE])


def build() -> Path:
    """Return the library, up to date; it is in src/adaquantfl if it is for this machine."""
    folder, units = library_objects()
    made, library = folder / NAME, ROOT / "src" / "adaquantfl" / NAME
    if not made.exists() or made.stat().st_mtime < max(Path(unit).stat().st_mtime for unit in units):
        run([*compiler(), "-shared", *LINK, *units, "-o", str(made)])
    if "AQ_TARGET" in os.environ:
        return made
    if not library.exists() or library.read_bytes() != made.read_bytes():  # perhaps another compiler's
        shutil.copy(made, folder / "copy").replace(library)  # a process that has loaded the old one keeps it
    return library


class CustomBuildHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        return ["ziglang>=0.13"] if "ziglang" in compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = build()
        glibc = [int(number) for number in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())]
        tag = "linux" if max(glibc, default=0) > 17 else TAG
        name = f"py3-none-{tag}_{MACHINES.get(MACHINE, MACHINE)}"
        build_data |= {"pure_python": False, "infer_tag": False, "tag": name}
        if version != "editable":
            build_data["force_include"][str(library)] = f"adaquantfl/{NAME}"


if __name__ == "__main__":
    print(build())
