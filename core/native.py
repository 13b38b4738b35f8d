"""Test the core without Python: build the C test program or the fuzz targets with it, and run them.

    python core/native.py test        # the test program, compiled like the library
    python core/native.py sanitize    # by gcc and clang, with address and undefined-behaviour sanitizers
    python core/native.py aarch64     # cross-compiled, in qemu
    python core/native.py fuzz --minutes 10
    python core/native.py seeds       # keep what fuzzing has found worth keeping, in core/fuzz/seeds.tar.xz

The counts of fuzzing go to evidence/records/fuzz/native.json, findings to fuzz/findings/.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from hatch_build import FLAGS, MACHINE, compiler, library_objects, objects, run  # noqa: E402

SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TARGETS = ("fixed", "sparse", "dense", "whole", "known", "sum", "roundtrip", "naive")  # of core/fuzz/targets.c
LONGEST = 700  # bytes of an input
CORE = ROOT / "core"
GOLDEN = ROOT / "tests" / "codecs" / "golden"
CORPUS = ROOT / "fuzz" / "corpus"
FINDINGS = ROOT / "fuzz" / "findings"
SEEDS = CORE / "fuzz" / "seeds.tar.xz"
RECORD = ROOT / "evidence" / "records" / "fuzz" / "native.json"
# Leaks are looked for with ptrace, which containers often forbid.
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16"}


def find(*names: str, package: str) -> str:
    found = next(filter(shutil.which, names), None)
    return found or sys.exit(f"{names[0]} was not found: install it (on Debian, apt-get install {package}).")


def program(name: str, command: list[str], machine: str, source: str, *own: str) -> str:
    """Compile and link a source with the core and naive.c; `own` flags are for the source alone."""
    folder = ROOT / "build" / f"native-{name}"
    return link(folder, [*command, *FLAGS, "-O2"], objects(folder, [*command, *FLAGS, "-O2"], machine), source, *own)


def link(folder: Path, command: list[str], units: list[str], source: str, *own: str) -> str:
    made = str(folder / "-".join([Path(source).stem, *(flag.partition("=")[2] for flag in own[:1])]))
    run([*command, *own, *units, str(CORE / "test" / "naive.c"), str(CORE / source), "-o", made])
    return made


def run_tests(name: str, made: str, *under: str) -> int:
    print(f"{name}: ", end="", flush=True)
    return subprocess.run([*under, made, GOLDEN], env=ENVIRONMENT, check=False).returncode


def plain() -> int:
    folder, units = library_objects()
    return run_tests("plain", link(folder, [*compiler(), *FLAGS], units, "test/test.c"))


def sanitized() -> int:
    found = [next(filter(shutil.which, names), None) for names in (("gcc", "cc"), ("clang", "clang-14"))]
    failed = 0
    for name in filter(None, found) if any(found) else [find("gcc", package="gcc")]:
        failed += run_tests(name, program(f"sanitized-{name}", [name, *SANITIZE], MACHINE, "test/test.c")) != 0
    return int(failed > 0)


def aarch64() -> int:
    cross = find("aarch64-linux-gnu-gcc", package="gcc-aarch64-linux-gnu")
    qemu = find("qemu-aarch64-static", "qemu-aarch64", package="qemu-user-static")
    return run_tests("aarch64", program("aarch64", [cross, "-static"], "aarch64", "test/test.c"), qemu)


def fuzzer(target: str) -> str:
    clang = find("clang", "clang-14", package="clang")
    flags = [*SANITIZE, "-fsanitize=fuzzer-no-link"]
    return program("fuzz", [clang, *flags], MACHINE, "fuzz/targets.c", f"-DTARGET={target}", "-fsanitize=fuzzer")


def fuzz(minutes: float, counts: Path) -> int:
    """Run every target for its share of the time; return whether there was a finding."""
    if not CORPUS.exists():
        with tarfile.open(SEEDS) as archive:
            archive.extractall(CORPUS, filter="data")
    FINDINGS.mkdir(parents=True, exist_ok=True)
    found = 0
    for target in TARGETS:
        command = [fuzzer(target), f"-max_total_time={round(60 * minutes / len(TARGETS)) or 1}", f"-max_len={LONGEST}"]
        command += [
            "-timeout=10",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            f"-artifact_prefix={FINDINGS}/{target}-",
        ]
        begun = time.monotonic()
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        done = subprocess.run([*command, CORPUS / target], env=ENVIRONMENT, stderr=subprocess.PIPE, check=False)
        words = done.stderr.decode(errors="replace")
        if done.returncode:
            print(words[-4000:], file=sys.stderr)
        (executions,) = re.findall(r"number_of_executed_units: *(\d+)", words) or [0]
        record(counts, target, int(executions), time.monotonic() - begun, done.returncode != 0)
        found += done.returncode != 0
    return int(found > 0)


def record(path: Path, target: str, executions: int, seconds: float, findings: int) -> None:
    """Add a run's counts to the file."""
    counts = json.loads(path.read_text()) if path.exists() else {}
    new = {"executions": executions, "seconds": round(seconds), "findings": int(findings)}
    counts[target] = {name: counts.get(target, {}).get(name, 0) + value for name, value in new.items()}
    path.write_text(json.dumps(counts, indent=2) + "\n")
    print(f"{target}: {executions:,} executions in {seconds:.0f} s, {int(findings)} findings", flush=True)


def seeds() -> int:
    """Pack the least inputs that reach what all do, up to 200 bytes each."""
    with tarfile.open(SEEDS, "w:xz") as archive:
        for target in TARGETS:
            least = CORPUS.with_name("least") / target
            shutil.rmtree(least, ignore_errors=True)
            least.mkdir(parents=True)
            command = [fuzzer(target), "-merge=1", "-max_len=200", least, CORPUS / target]
            subprocess.run(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL, check=True)
            for number, path in enumerate(sorted(least.iterdir(), key=Path.read_bytes)):
                entry = archive.gettarinfo(path, f"{target}/{number}")
                entry.mtime, entry.uname, entry.gname, entry.uid, entry.gid = 0, "", "", 0, 0
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    print(f"{SEEDS}: {SEEDS.stat().st_size:,} bytes")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("test", "sanitize", "aarch64", "fuzz", "seeds"))
    parser.add_argument("--minutes", type=float, default=1.0, help="of all fuzz targets together")
    parser.add_argument("--record", type=Path, default=RECORD, help="where the counts of fuzzing are added")
    options = parser.parse_args()
    if options.what == "fuzz":
        return fuzz(options.minutes, options.record)
    return {"test": plain, "sanitize": sanitized, "aarch64": aarch64, "seeds": seeds}[options.what]()


if __name__ == "__main__":
    sys.exit(main())
