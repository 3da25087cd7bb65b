"""The numerically delicate tests under other processors' kernels: same verdicts, whatever rounds.

    python tests/portable.py            every setting, every file in `DELICATE`
    python tests/portable.py short      two kernels, the files in `SHORT`

OpenBLAS takes other kernels on other processors (`OPENBLAS_CORETYPE`), NumPy other loops
(`NPY_DISABLE_CPU_FEATURES`), numba other instructions (`NUMBA_CPU_NAME`): sums are taken in another
order, with or without fused products. Digits may differ by what the tolerances of the tests say, a
verdict (passed, converged, refused) may not. A kernel that this processor cannot run is left out
and said so.
"""

import importlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
# Most delicate first: degenerate data, factorisations, searches that compare evidences.
SHORT = ("degenerate", "posterior", "sequential_ard", "truth")
DELICATE = (
    *SHORT,
    "factor",
    "sparse_models",
    "gaussian_ard",
    "gaussian_route",
    "hyper",
    "fixed_point",
    "laplace",
    "sites",
    "ep",
    "correction",
    "exact",
    "exact_kernels",
    "truncated_normal",
    "trigonometric",
    "dual",
    "support",
    "process_run",
    "process_search",
    "softmax_laplace",
    "softmax_run",
    "sparse_logistic",
    "blocks",
    "linear",
    "sample_feature_vb",
    "moments",
    "mixture_kernels",
    "run_conditional",
    "leaps",
    "collapsed",
    "replace",
    "subset_laplace",
    "moves",
    "sampled",
    "references",
    "regressions",
    "rvm",
    "projection",
    "psis",
)
ALIASES = {"Katmai": "Prescott"}  # what OpenBLAS calls a kernel, where it says another name
NEEDS = {  # what a processor must have to run a kernel of OpenBLAS
    "Prescott": "SSE3",
    "Sandybridge": "AVX",
    "Haswell": "AVX2",
    "Zen": "AVX2",
    "SkylakeX": "AVX512_SKX",
}


class Setting(NamedTuple):
    """Environment variables, and a name for them."""

    name: str
    variables: dict[str, str]


def processor() -> tuple[dict[str, bool], list[str]]:
    """What the processor has, and what NumPy has loops of its own for."""
    core = importlib.import_module("numpy._core._multiarray_umath")
    features = dict(core.__cpu_features__)
    return features, [name for name in core.__cpu_dispatch__ if features.get(name)]


def settings(short: bool, cache: str) -> list[Setting]:
    """Those that this processor can run."""
    features, loops = processor()
    wanted = ("Prescott", "Haswell") if short else tuple(NEEDS)
    found = []
    for kernel in wanted:
        if features.get(NEEDS[kernel]):
            found.append(Setting(f"OpenBLAS {kernel}", {"OPENBLAS_CORETYPE": kernel}))
        else:
            print(f"OpenBLAS {kernel}: left out, this processor has no {NEEDS[kernel]}")
    if short:
        return found
    if loops:
        found.append(Setting("NumPy baseline loops", {"NPY_DISABLE_CPU_FEATURES": " ".join(loops)}))
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": cache}
    return [*found, Setting("numba generic", generic)]


def kernel_taken(environment: dict[str, str]) -> str:
    """The kernel that OpenBLAS says it has taken."""
    script = (
        "import numpy, scipy.linalg, threadpoolctl\n"
        "print(*{i.get('architecture') for i in threadpoolctl.threadpool_info()})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    taken = ran.stdout.strip()
    return ALIASES.get(taken, taken)


def run(environment: dict[str, str], files: tuple[str, ...]) -> tuple[str, list[str]]:
    """Summary of pytest, and the tests that failed."""
    paths = [str(path) for name in files for path in TESTS.rglob(f"test_{name}.py")]
    if len(paths) != len(files):
        raise SystemExit(f"{len(files)} names of test files, but {len(paths)} such files: {paths}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    workers = os.environ.get("JOBS", "2")
    spread = ["-n", workers, "--dist", "loadfile"] if workers != "1" else []
    ran = subprocess.run(
        [*command, *spread, *paths],
        env=environment,
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    if ran.returncode != 0:
        print(ran.stdout[-8000:], ran.stderr[-2000:])
        failed = failed or [f"pytest ended with code {ran.returncode}"]
    return ran.stdout.strip().splitlines()[-1].strip("= "), failed


def main() -> int:
    """Run every setting; 1 if any test failed anywhere."""
    short = sys.argv[1:] == ["short"]
    bad, done = 0, set[str]()
    with tempfile.TemporaryDirectory() as cache:
        for setting in settings(short, cache):
            environment = {**os.environ, **setting.variables}
            if "OPENBLAS_CORETYPE" in setting.variables:
                taken = kernel_taken(environment)
                if taken in done:
                    print(f"{setting.name}: in this OpenBLAS the same kernel as {taken}")
                    continue
                done.add(taken)
            begin = time.perf_counter()
            summary, failed = run(environment, SHORT if short else DELICATE)
            print(f"{setting.name}: {summary} ({time.perf_counter() - begin:.0f} s)", flush=True)
            for name in failed:
                print(f"    {name}")
            bad += len(failed)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
